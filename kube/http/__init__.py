"""HTTP towards a Kubernetes API: a client, the sessions of HTTP/1.1 and HTTP/2 that it speaks through, and
kubeconfigs.
"""
