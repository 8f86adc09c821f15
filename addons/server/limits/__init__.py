"""Bounds the data and requests of a client, an address and a listener."""
