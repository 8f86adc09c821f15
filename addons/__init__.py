"""The hub as an addon of mitmproxy's. A module directly in this package is a part of it, or of what starts the parts.

A part is one class whose public methods are mitmproxy's hooks. What the parts use lies in the sub-packages, by
concern; docs/architecture.md has the list of these rooms and follows a request through them.
"""
