"""Steps before the process opens a port: modules left out, sockets taken over, checks and locks.

A ValueError names the option that is wrong. Nothing here imports mitmproxy: modules are left out before it is imported.
"""
