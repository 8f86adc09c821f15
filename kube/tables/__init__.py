"""Objects as the Tables that kubectl requests from kube-apiserver: columns and cells of the common kinds. Pure."""
