"""Applies writes to objects as kube-apiserver does: patches, and status updates. Pure."""
