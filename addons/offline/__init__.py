"""Lets a node live without its cloud: copies on disk, reads and writes answered from them, the lease.

No module here imports mitmproxy.
"""
