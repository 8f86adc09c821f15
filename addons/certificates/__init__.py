"""Certificates that the hub makes for its own listeners."""
