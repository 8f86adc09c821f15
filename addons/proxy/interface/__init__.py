"""The hub's changes to mitmproxy's interfaces. Loaded only if one is open."""
