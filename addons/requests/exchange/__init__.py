"""A client's requests as the hub handles them without mitmproxy's classes. No module imports mitmproxy.

What the clients at one address may hold, and what is read from their sockets and written to them. `addons.proxy` leads
mitmproxy's layers here.
"""
