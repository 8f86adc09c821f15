"""The commands with which a person asks a running hub: from a shell, and in mitmproxy's command line."""
