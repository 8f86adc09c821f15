"""One suite, two clouds: what a kube-apiserver answers, asserted of a real one and of the scriptable one alike.

A test here must not know which of the two it speaks to.
"""
