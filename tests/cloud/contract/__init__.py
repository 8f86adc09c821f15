"""One suite for two clouds: kube-apiserver's responses, asserted of a real one and of the scriptable one. A test here
does not know which of the two it calls."""
