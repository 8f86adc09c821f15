"""Connections to servers over HTTP/2 and HTTP/1.1, the pool that shares them, and responses as they arrive."""
