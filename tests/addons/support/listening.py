"""The port of a hub's listener that was opened on port 0."""

from __future__ import annotations

from addons.proxy.listener_mode import HubMode
from addons.proxy.listeners import _servers


def address_of(spec: str) -> tuple[str, int]:
    host, port, *_ = _servers()[HubMode.parse(spec)].listen_addrs[0]
    return host, port
