"""What a write makes of an object: patches and updates of the status, with the results of a kube-apiserver. Pure."""
