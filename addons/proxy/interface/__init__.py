"""What the hub changes of mitmproxy's interfaces. Loaded beside one alone."""
