"""Changes of the hub to mitmproxy's interfaces. Loaded beside one alone."""
