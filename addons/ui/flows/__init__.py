"""The display of a flow in mitmproxy's interfaces: its comment, its body, its watch as it goes on, and what filters
did.

`addons.console` imports this package beside an interface alone.
"""
