"""The display of a flow in mitmproxy's interfaces: comment, body, open watch, and filters' verdicts.

`addons.console` imports this package beside an interface alone.
"""
