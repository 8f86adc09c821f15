"""Writes to objects, with the results of a kube-apiserver: patches, and updates of a status. Pure."""
