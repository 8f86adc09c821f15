"""The hub's mitmproxy addons: one module per concern, each with one addon class whose public methods are
hooks or commands and whose decisions are functions beside it.

Beside the addons live the pure tables that they decide with (`addons.rules.table`). `hub` holds the list of addons
and nothing else. Filters are in `addons.filters`, what both sides know about Kubernetes is in `kube`; no
logic lives in this file.
"""
