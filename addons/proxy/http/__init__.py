"""mitmproxy's HTTP layers, changed: connections, streams, and what they hold. Each module lists its patches."""
