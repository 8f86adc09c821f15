"""The two encodings of Kubernetes objects, lists and watch events, and their negotiation. Pure."""
