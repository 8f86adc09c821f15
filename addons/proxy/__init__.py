"""The hub as mitmproxy has it: a mode with its listeners, one addon under one guard, and what interfaces show of it."""
