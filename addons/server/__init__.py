"""Serves clients: each connection is one protocol object, and each request is one task.

`accept` takes a connection and decides by its first byte: TLS (`clients.client_tls`), a CONNECT at the peer port
(`peer`), or HTTP (`clients.http1_client` by h11, `clients.http2_client` by h2). Both HTTP clients make a
`request.ServedRequest` of each head and start `serve.serve` for it, which runs the hooks, reads the body, and answers
it (`respond`) or relays it (`relay`). Only mitmproxy's hooks (`flow_hooks`) and message types (`messages`) are used,
for its interfaces and addons; its proxy layers are not. `limits` bounds the resources that clients use.

Each version of HTTP implements `ServedRequest`, which `serve`, `respond` and `relay` use: `read`, `send` and `writable`
wait, all other methods return at once, and `ClientLeft` is raised when the client has disconnected.
"""
