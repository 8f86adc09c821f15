"""Keeps a node working without its cloud: copies on disk, reads and writes answered from them, and the node's Lease.

No module here imports mitmproxy.
"""
