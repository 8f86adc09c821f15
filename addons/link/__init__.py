"""The servers of the cloud: their addresses, their health, the probes that check it, and TLS to them.

No module here imports mitmproxy.
"""
