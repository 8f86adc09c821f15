"""The display of flows in mitmproxy's interfaces: comments, bodies, open watches, and filters' verdicts.

`addons.console` imports this package only beside an interface.
"""
