"""The hub as an addon of mitmproxy: a mode with its listeners, one guarded addon, and changes to mitmproxy's
interfaces.
"""
