"""Connections of clients: their common part, TLS, and a protocol for each version of HTTP."""
