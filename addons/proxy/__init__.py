"""The hub as an addon of mitmproxy: a mode with its listeners, one addon under one guard, its views in interfaces."""
