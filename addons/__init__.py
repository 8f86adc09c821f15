"""The hub as an addon of mitmproxy. A module directly in this package is a part of the addon, or starts the parts.

A part is one class whose public methods are mitmproxy's hooks. The sub-packages have the code that the parts use, by
concern; docs/architecture.md lists these packages and follows a request through them.
"""
