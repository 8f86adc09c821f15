"""All that derives from mitmproxy's classes, or yields commands to its layers, and nothing else.

Where a class is there for a fault of mitmproxy's, a test of its module says when it can go.
"""
