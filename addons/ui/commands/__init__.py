"""The commands that query a running hub: from a shell, and in mitmproxy's command line."""
