"""Parses requests as kube-apiserver does: paths, list options, selectors, resourceVersions. Pure."""
