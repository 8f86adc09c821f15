"""Serves clients: one connection is one protocol object, and one request is one task.

`accept` takes a connection and decides by its first byte: TLS (`clients.client_tls`), a CONNECT at the peer port
(`peer`), or HTTP (`clients.http1_client` by h11, `clients.http2_client` by h2). Both HTTP clients make a
`request.ServedRequest` of each head and start `serve.serve` for it, which runs the hooks, reads the body, and answers
it (`respond`) or relays it (`relay`). mitmproxy provides the hooks (`flow_hooks`) and the message types that its
interfaces show (`messages`). It handles no byte. `limits` bounds the resources that clients use.

Each version of HTTP implements `ServedRequest`, and `serve`, `respond` and `relay` use it: `read`, `send` and
`writable` wait, all other methods return at once, and `ClientLeft` is raised when the client has gone.
"""
