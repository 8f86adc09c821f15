"""What a client asks for, read as a kube-apiserver reads it: paths, options, selectors, versions. Pure."""
