"""Counts open connections, by address and in the process, and decides whether one more fits.

The TLS and peer ports cannot exhaust the file descriptors: a quarter is reserved for the plain port, which kubelet
uses, and for the hub's own connections, disk and log.
"""

from __future__ import annotations

from collections.abc import Callable

from addons.requests.caller import Listener
from addons.server.limits.client_addresses import MAX_CONNECTIONS, ClientAddress
from addons.telemetry import metrics

RESERVED_SHARE = 4
"""Divisor: a fraction of 1 / RESERVED_SHARE of the descriptors is not available to clients of the TLS and peer
ports.
"""
OWN_DESCRIPTORS = 64
"""Descriptors reserved for the hub itself: listeners, disk, log."""


class OpenConnections:
    """Counts open connections."""

    def __init__(self, descriptors: int) -> None:
        """`descriptors`: maximum open file descriptors of the process."""
        self._descriptors = descriptors
        self._clients: dict[str, ClientAddress] = {}
        """The address counters of each open client connection, by its id."""
        self._own: Callable[[], int] = lambda: 0
        """Returns the number of the hub's own connections to servers."""

    def opened(self, client_id: str, listener: Listener | None, address: ClientAddress) -> str:
        """Count a new client connection. Return why it must close, or "" if it may stay."""
        self._clients[client_id] = address
        address.connections += 1
        if _is_bounded(listener) and address.connections > MAX_CONNECTIONS:
            metrics.CONNECTIONS_REFUSED.labels("peer").inc()
            return "too many connections from this address"
        if not self.has_capacity(listener):
            metrics.CONNECTIONS_REFUSED.labels("descriptors").inc()
            return "too many connections"
        return ""

    def closed(self, client_id: str) -> None:
        """Stop counting a client's connection."""
        if (address := self._clients.pop(client_id, None)) is not None:
            address.connections -= 1

    def count_own(self, own: Callable[[], int]) -> None:
        """Set the function that returns the number of the hub's own connections to servers."""
        self._own = own

    def has_capacity(self, listener: Listener | None) -> bool:
        """Whether one more connection fits: from a client of this listener, or to a server on its behalf."""
        used = len(self._clients) + self._own() + OWN_DESCRIPTORS
        reserved = self._descriptors // RESERVED_SHARE if _is_bounded(listener) else 0
        return used <= self._descriptors - reserved


def _is_bounded(listener: Listener | None) -> bool:
    """Whether connections of this listener are limited per address and barred from reserved descriptors. The plain
    port, which kubelet uses, is exempt.
    """
    return listener in (Listener.TLS, Listener.PEER)
