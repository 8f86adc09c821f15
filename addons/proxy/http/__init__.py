"""mitmproxy's HTTP layers, derived from: connections, streams, and what they hold."""
