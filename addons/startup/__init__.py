"""Checks and locks that the hub makes before it opens a port. A ValueError names the option that is wrong."""
