"""Lends this hub's link to nodes of the pool that have none: authorizes tunnels, checks their targets, and limits their
rate.

The borrower speaks TLS with the server through the tunnel, so this hub learns only the number of bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable

from addons.link.health import Cloud
from addons.link.servers import Server
from addons.pool.peer_admission import Admission, refused
from addons.telemetry import metrics
from kube.errors import forbidden, too_many_requests, unavailable

MAX_TUNNELS_OF_NODE = 128
"""Tunnels of one borrower: one for its hub's own requests, and one for each connection that it relays."""
MAX_TUNNELS = 512
"""Tunnels of all borrowers together."""
BORROWER_DIVISOR = 2
"""The divisor of the lending rate for one borrower's share."""
BORROWER_DELAY = 1.0
"""Maximum seconds by which this node's own traffic delays borrowers, so that they are never locked out."""

logger = logging.getLogger(__name__)


class LentRate:
    """A rate limit, as the time until which the bytes already sent use it up."""

    def __init__(self, rate: float) -> None:
        """`rate` is in bytes a second."""
        self._rate = rate
        self._free = float("-inf")
        """Monotonic seconds at which a link of this rate would have carried all bytes."""

    def reserve(self, size: int, now: float) -> float:
        """Reserve bytes of the rate; return the seconds until they may be sent."""
        self._free = max(self._free, now) + size / self._rate
        return self._free - now

    def yield_to(self, size: int, now: float) -> None:
        """Count bytes that were sent without waiting: borrowers wait for them, up to BORROWER_DELAY."""
        begin = max(self._free, now)
        self._free = max(begin, min(begin + size / self._rate, now + BORROWER_DELAY))


class LentRates:
    """The rate limits of all borrowers together and of each one."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        """`rate` is in kilobytes a second. `clock` is monotonic."""
        self._rate = 1000.0 * rate
        self._clock = clock
        self._all = LentRate(self._rate)
        self._borrowers: dict[str, LentRate] = {}

    def own(self, size: int) -> None:
        """Count bytes of this node's own traffic."""
        self._all.yield_to(size, self._clock())

    def wait(self, borrower: str, size: int) -> float:
        """Return the seconds until a borrower may send these bytes."""
        now = self._clock()
        share = self._borrowers.get(borrower)
        if share is None:
            share = self._borrowers[borrower] = LentRate(self._rate / BORROWER_DIVISOR)
        return max(share.reserve(size, now), self._all.reserve(size, now))

    def forget(self, borrower: str) -> None:
        """Drop the state of a borrower that has no tunnels any more."""
        self._borrowers.pop(borrower, None)


class TunnelServer:
    """The open tunnels, by their connections to the peer port."""

    def __init__(
        self,
        cloud: Cloud,
        admission: Admission,
        rate: int,
        close: Callable[[str], object],
        *,
        is_on: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rate` is in kilobytes a second. `close` ends a connection by its id. `clock` is monotonic."""
        self.is_open = False
        """Whether the peer port is open."""
        self._cloud = cloud
        self._admission = admission
        self._close = close
        self._is_on = is_on
        self._shares = LentRates(rate, clock)
        self._loans: dict[str, tuple[str, Server]] = {}
        """The borrower and the target server of each tunnel."""
        self._of_node: Counter[str] = Counter()
        self._opening: set[str] = set()
        """The tunnels whose connection to the server is not open yet."""

    @property
    def has_path(self) -> bool:
        """Whether this hub can lend now: only a link of its own, never a borrowed one."""
        return self._is_on and self.is_open and self._cloud.has_own_path

    def tunnels(self) -> dict[str, int]:
        """The number of open tunnels of each borrower."""
        return dict(self._of_node)

    def lend(
        self, connection: str, headers: Iterable[tuple[str, str]], address: str, host: str, port: int
    ) -> Server:
        """Admit a tunnel from a connection to the peer port, and return its server; StatusError if it is refused.

        `headers` and `address` are passed to `Admission.admit`.
        """
        node = self._admission.admit(connection, headers, address)
        if not self._is_on:
            raise refused("lends nothing", forbidden("tunnels to the cloud not allowed"))
        paths = [
            path for path in self._cloud.own_paths if (path.server.host, path.server.port) == (host, port)
        ]
        health = paths[0] if paths else None
        if health is None or health.server.scheme != "https":
            raise refused("target", forbidden(f"tunnel to {host}:{port} not allowed"))
        if not health.usable:
            raise refused("no way", unavailable("this hub cannot reach that server itself", retry_after=1))
        if self._of_node[node] >= MAX_TUNNELS_OF_NODE or len(self._loans) >= MAX_TUNNELS:
            raise refused("tunnels", too_many_requests("this hub has the maximum of tunnels", 1))
        self._loans[connection] = node, health.server
        self._opening.add(connection)
        self._of_node[node] += 1
        self._show(node)
        if self._of_node[node] == 1:
            logger.info("node %s opened a tunnel to the cloud", node)
        return health.server

    def opened(self, connection: str) -> None:
        """Record that a tunnel's connection to the server is open."""
        self._opening.discard(connection)

    def ended(self, connection: str) -> None:
        loan = self._loans.pop(connection, None)
        self._opening.discard(connection)
        if loan is None:
            return
        node, _ = loan
        self._of_node[node] -= 1
        self._show(node)
        if not self._of_node[node]:
            del self._of_node[node]
            self._shares.forget(node)
            logger.info("node %s closed its tunnel", node)

    def keep_only(self, may_borrow: Callable[[str], bool]) -> None:
        """Close the tunnels of nodes that may no longer borrow."""
        self._end(lambda _, node, __: not may_borrow(node))

    def cut(self, server: Server) -> int:
        """Close the open tunnels to a server, and return their number. A tunnel that is still opening gets its own
        error."""
        return self._end(lambda connection, _, to: to == server and connection not in self._opening)

    def _end(self, matches: Callable[[str, str, Server], bool]) -> int:
        ended = [connection for connection, loan in self._loans.items() if matches(connection, *loan)]
        for connection in ended:
            self._close(connection)
        return len(ended)

    def own(self, size: int) -> None:
        """Count bytes of this node's own traffic with the cloud, which has priority."""
        if self._loans:
            self._shares.own(size)

    async def pace(self, connection: str, direction: str, size: int) -> None:
        """Wait until the rate limit permits these bytes of a tunnel. `direction` is up, to the cloud, or down."""
        loan = self._loans.get(connection)
        if loan is None:
            return
        node, _ = loan
        metrics.LENT_BYTES.labels(direction, metrics.peer_label(node)).inc(size)
        await asyncio.sleep(self._shares.wait(node, size))

    def _show(self, node: str) -> None:
        metrics.LENT_TUNNELS.labels(metrics.peer_label(node)).set(self._of_node[node])
