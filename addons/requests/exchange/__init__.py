"""A client's requests as the hub handles them without mitmproxy's classes. No module imports mitmproxy.

What the clients at one address may hold, what is read from their sockets and written to them, which heads are refused,
and how a request is answered, by a server or by the hub. `addons.proxy` leads mitmproxy's layers here, and
`client_side` is the seam.
"""
