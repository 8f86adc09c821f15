"""The servers of the cloud: their addresses, their health and the probes that watch it, and TLS towards them.

No module here imports mitmproxy.
"""
