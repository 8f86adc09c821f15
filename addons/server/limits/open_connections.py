"""The number of the hub's connections, of an address and of the process, and whether one more fits.

One port may not use up all: a quarter of the descriptors is left to the plain port, where kubelet is, and to the hub's
own connections, disk and log.
"""

from __future__ import annotations

from collections.abc import Callable

from addons.requests.caller import Listener
from addons.server.limits.client_addresses import MAX_CONNECTIONS, ClientAddress
from addons.telemetry import metrics

RESERVED_SHARE = 4
"""One part in so many of the descriptors is out of reach for the TLS port's clients."""
OWN_DESCRIPTORS = 64
"""Descriptors that no client's connection gets: listeners, disk, log."""


class OpenConnections:
    """Counts connections as they come and go."""

    def __init__(self, descriptors: int) -> None:
        """`descriptors` is how many the process may have."""
        self._descriptors = descriptors
        self._clients: dict[str, ClientAddress] = {}
        """From where each client connected, by the connection's id."""
        self._own: Callable[[], int] = lambda: 0
        """How many connections to servers the hub's own client has."""

    def opened(self, client_id: str, listener: Listener | None, address: ClientAddress) -> str:
        """Count a client's connection; why it must end, "" if it may stay."""
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
        """Count a client's connection no longer."""
        if (address := self._clients.pop(client_id, None)) is not None:
            address.connections -= 1

    def count_own(self, own: Callable[[], int]) -> None:
        """Count the connections of the hub's own client among all others."""
        self._own = own

    def has_capacity(self, listener: Listener | None) -> bool:
        """Whether one more connection fits, of a client of this listener or to a server for it."""
        used = len(self._clients) + self._own() + OWN_DESCRIPTORS
        reserved = self._descriptors // RESERVED_SHARE if _is_bounded(listener) else 0
        return used <= self._descriptors - reserved


def _is_bounded(listener: Listener | None) -> bool:
    """Whether descriptors are out of reach for a listener's clients, which are not of the plain port."""
    return listener in (Listener.TLS, Listener.PEER)
