"""Objects as kube-apiserver's Tables, which kubectl asks for: columns and cells of the common kinds. Pure."""
