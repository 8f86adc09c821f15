"""The hub as a mitmproxy addon. A module directly in this package is a part of the addon, or starts the parts.

A part is one class whose public methods are mitmproxy's hooks. The sub-packages contain the code of the parts, by
concern; docs/architecture.md lists them and follows a request through them.
"""
