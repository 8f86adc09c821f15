"""Serves clients: one connection is one protocol object, and one request is one task.

`accept` takes a connection and looks at its first byte: TLS (`clients.client_tls`), a CONNECT at the peer port
(`peer`), or HTTP (`clients.http1_client` by h11, `clients.http2_client` by h2). Either makes a `request.ServedRequest`
of each head and starts `serve.serve` for it, which reads as a line: hooks, body, answer (`respond`) or relay (`relay`),
send. mitmproxy gives the hooks (`flow_hooks`) and the messages that people see (`messages`), and handles no byte.
`limits` bounds what clients may hold.

A version of HTTP implements `ServedRequest`, and `serve`, `respond` and `relay` use it: `read`, `send` and `writable`
wait, all others return at once, and `ClientLeft` is raised when the client has gone.
"""
