"""HTTP clients for a Kubernetes API: a client, its sessions over HTTP/1.1 and HTTP/2, and kubeconfigs."""
