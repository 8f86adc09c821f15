"""Runs client programs of several ecosystems directly at kube-apiserver and through a hub; compares their results."""
