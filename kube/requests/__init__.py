"""Requests as a kube-apiserver reads them: paths, list options, selectors, resourceVersions. Pure."""
