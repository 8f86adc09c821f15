"""Steps before the process opens a port: unused modules replaced, sockets adopted, settings checked, locks taken.

A ValueError names the wrong option. Nothing here imports mitmproxy, because modules must be replaced before its import.
"""
