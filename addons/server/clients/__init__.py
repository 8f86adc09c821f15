"""Connections of clients: what all have in common, TLS, and a protocol for each version of HTTP."""
