"""One suite, two clouds: the answers of a kube-apiserver, asserted of a real one and of the scriptable one.

A test here does not know which of the two it calls.
"""
