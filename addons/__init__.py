"""The hub as mitmproxy addons. A module directly in this package is an addon, or part of what starts the addons.

An addon is one class whose public methods are mitmproxy's hooks. What the addons use lies in the sub-packages, by
concern; docs/architecture.md has the list of these rooms and follows a request through them.
"""
