"""mitmproxy's handler of a connection, derived from: what is read and written, and how it ends."""
