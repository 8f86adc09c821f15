"""The two encodings of Kubernetes objects, lists and watch events, and how a client chooses one. Pure."""
