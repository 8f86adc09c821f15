"""The health of each server: a table of conditions, updated by probes and by live requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from addons.link.servers import Server, ServerOrder
from addons.link.timeouts import TimeoutEstimator
from addons.link.uplinks.uplink import Uplink, readable_error
from kube.concurrency.notifier import Notifier

CONSECUTIVE_ERRORS = 2
"""Consecutive 5xx answers to probes after which a server counts as down. A single one proves nothing."""
RECOVERY_SUCCESSES = 2
"""Consecutive successes after which a server of the cloud is up again: a flapping link must not make the node flap."""
RETRY_REFUSED = 5
"""Retry-After in seconds for requests that fail because the cloud refuses the node's identity."""


class Condition(StrEnum):
    """The condition of a server."""

    UNKNOWN = "unknown"
    """No probe has returned yet. The server is used: waiting for a probe would delay each start."""
    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"
    """Down, with some successes since, but fewer than recovery requires."""


SUCCEEDED = {
    Condition.UNKNOWN: Condition.UP,
    Condition.UP: Condition.UP,
    Condition.DOWN: Condition.RECOVERING,
    Condition.RECOVERING: Condition.RECOVERING,
}
"""The next condition after a success; RECOVERING becomes UP after `ServerHealth.recovery` successes. A failure always
leads to DOWN.
"""


@dataclass(slots=True)
class ServerHealth:
    """The health of one server, with the times from which probes are scheduled."""

    server: Server
    timeouts: TimeoutEstimator = field(default_factory=TimeoutEstimator)
    condition: Condition = Condition.UNKNOWN
    reason: str = field(default="", init=False)
    """Why the server is down, as a sentence without errno numbers."""
    has_answered: bool = field(default=False, init=False)
    """Whether the server has ever answered a probe, with any status. An open connection alone does not count."""
    last_received: float = field(default=float("-inf"), init=False)
    """Monotonic time at which the server last sent anything on any connection."""
    first_unanswered: float = field(default=float("-inf"), init=False)
    """Monotonic time of the first request after that. If it is later than `last_received`, the server owes an
    answer."""
    is_erring: bool = field(default=False, init=False)
    """Whether the server has answered a request with 5xx, or too late, since its last probe."""
    connections: int = field(default=0, init=False)
    """Number of open connections to the server."""
    node_failed: float = field(default=float("-inf"), init=False)
    """Monotonic time at which a connection last failed because this node lacked a resource."""
    resolver_failed: float = field(default=float("-inf"), init=False)
    """Monotonic time at which the server's name last could not be resolved."""
    down_since: float = field(default=0.0, init=False)
    """Monotonic time at which the server last went down; 0 if it never did."""
    up_since: float = field(default=0.0, init=False)
    """Monotonic time at which the server last came up; 0 if it never did. The first answer counts."""
    refuses_node: bool = field(default=False, init=False)
    """Whether the server answers, but refuses the node's credentials: they are missing, expired, or invalid."""
    recovery: int = RECOVERY_SUCCESSES
    """Consecutive successes after which the server is up again."""
    _successes: int = field(default=0, init=False)
    _errors: int = field(default=0, init=False)

    @classmethod
    def untried(cls, server: Server, timeouts: TimeoutEstimator) -> ServerHealth:
        """Return the health of a server that is not used before its first answer."""
        made = cls(server, timeouts, Condition.RECOVERING)
        made._successes = RECOVERY_SUCCESSES - 1
        return made

    @property
    def usable(self) -> bool:
        return self.condition in (Condition.UNKNOWN, Condition.UP)

    @property
    def silence(self) -> float:
        """Seconds of silence after which a server that owes an answer counts as down."""
        return self.timeouts.silence if self.condition is Condition.UP else self.timeouts.first_silence

    def note_request(self, now: float) -> None:
        """Record a request to the server."""
        if self.first_unanswered <= self.last_received:
            self.first_unanswered = now

    def due(self, last: float) -> float:
        """Return when to probe a healthy server next, given the time of its last answer or probe."""
        due = last + self.timeouts.interval
        return (
            due if self.first_unanswered <= last else min(due, self.first_unanswered + self.timeouts.patience)
        )

    def succeeded(self) -> bool:
        """Record a success. Return True if it makes the server usable."""
        was, before = self.usable, self.condition
        self.has_answered = True
        self._successes += 1
        self._errors = 0
        self.condition = SUCCEEDED[self.condition]
        if self.condition is Condition.RECOVERING and self._successes >= self.recovery:
            self.condition = Condition.UP
        if self.condition is Condition.UP:
            self.reason = ""
            if before is not Condition.UP:
                self.up_since = time.monotonic()
        return self.usable and not was

    @property
    def doubtful(self) -> bool:
        """Whether the server is up although its last answer to a probe was an error."""
        return self.usable and self._errors > 0

    def note_error(self, reason: str) -> bool:
        """Record a 5xx answer to a probe. Return True if it makes the server unusable."""
        self.has_answered = True
        self._errors += 1
        return self.failed(reason) if self._errors >= CONSECUTIVE_ERRORS or not self.usable else False

    def failed(self, reason: str) -> bool:
        """Record a failure. Return True if it makes the server unusable."""
        was = self.usable
        if was:
            self.down_since = time.monotonic()
        self._successes = 0
        self.condition, self.reason = Condition.DOWN, readable_error(reason)
        return was


@dataclass(slots=True)
class Cloud:
    """The servers of the cloud, and the choice among the usable ones."""

    servers: list[ServerHealth]
    """The servers through the node's own link: one entry for each server, or for each pair of uplink and server, those
    of the preferred uplink first."""
    order: ServerOrder
    uplink: Uplink | None = None
    """The uplink in use; None if the routes of the node decide."""
    borrowed: tuple[ServerHealth, ...] = ()
    """The servers through other hubs of the pool, which `addons.pool.shared_links` borrows or tries."""
    changed: Notifier = field(default_factory=Notifier, init=False)
    """Notified when a server comes up or goes down."""
    _chosen: int = field(default=0, init=False)

    @classmethod
    def for_servers(
        cls, servers: Sequence[Server], uplinks: Sequence[Uplink], order: ServerOrder, *times: float
    ) -> Cloud:
        """Create the table from servers and uplinks. `times`: interval and timeout of the probes, in seconds."""
        paths = [(server, uplink) for uplink in uplinks or (None,) for server in servers]
        states = [
            ServerHealth(replace(server, uplink=uplink), TimeoutEstimator(*times)) for server, uplink in paths
        ]
        return cls(states, order, next(iter(uplinks), None))

    @property
    def uplinks(self) -> Sequence[Uplink]:
        """The uplinks in the order of preference."""
        return list(
            dict.fromkeys(server.server.uplink for server in self.servers if server.server.uplink is not None)
        )

    def reaches_server(self, uplink: Uplink) -> bool:
        return any(server.usable for server in self.servers if server.server.uplink == uplink)

    @property
    def working_uplink(self) -> Uplink | None:
        """The uplink in use if it reaches a server, otherwise the first one that does; None if none does."""
        if self.uplink is None:
            return None
        return next(filter(self.reaches_server, (self.uplink, *self.uplinks)), None)

    @property
    def own_paths(self) -> Sequence[ServerHealth]:
        """The servers through this node's own link, by the uplink that is in use."""
        if self.uplink is None:
            return self.servers
        uplink = self.working_uplink or self.uplink
        return [server for server in self.servers if server.server.uplink == uplink]

    def is_spare(self, health: ServerHealth) -> bool:
        """Whether this server is reached by an uplink that is needed only when a preferred one fails."""
        uplinks, used = self.uplinks, self.working_uplink
        if used is None or health.server.uplink is None:
            return False
        return uplinks.index(health.server.uplink) > uplinks.index(used)

    @property
    def has_own_path(self) -> bool:
        """Whether this node's own link reaches a server."""
        return any(server.usable for server in self.servers)

    @property
    def paths(self) -> Sequence[ServerHealth]:
        """The servers through the link in use: a borrowed link until it is returned or fails, otherwise the node's
        own.
        """
        if self.borrowed and any(state.usable for state in self.borrowed):
            return self.borrowed
        return self.own_paths

    @property
    def lender(self) -> str:
        """Node whose link is used; "" for this node's own."""
        server = self.paths[0].server if self.paths else None
        return server.lender.node if server is not None and server.lender is not None else ""

    @property
    def is_up(self) -> bool:
        """Whether the node has a cloud: a server that is reachable and accepts the node's identity."""
        return bool([path for path in self.paths if path.usable and not path.refuses_node])

    @property
    def is_reachable(self) -> bool:
        """Whether a server is reachable, which suffices for callers with their own credentials."""
        return bool([path for path in self.paths if path.usable])

    @property
    def seconds_away(self) -> float | None:
        """Seconds since the last server became unreachable; None while one is reachable."""
        if self.is_reachable:
            return None
        return time.monotonic() - max(server.down_since for server in self.servers)

    @property
    def up_since(self) -> float:
        """Monotonic time since which this process has the cloud, or had it before the outage; 0 if it never did."""
        return max(server.up_since for server in (*self.servers, *self.borrowed))

    @property
    def reasons(self) -> str:
        """Why no server is usable: each server with its reason."""
        reasons = ((server.server, self.refusal or server.reason) for server in self.servers)
        return "; ".join(f"{server}: {why}" for server, why in reasons if why)

    @property
    def refusal(self) -> str:
        """Why the node has no cloud although a server answers; "" otherwise."""
        if self.is_up or not self.is_reachable:
            return ""
        return "the cloud does not accept the node's identity: its certificate or token may have expired"

    def choose(self) -> Server | None:
        """Choose a usable server by `order`: the first in the list, or round robin. None if all are down.

        A server that refuses the node's identity is chosen only if all do: callers with their own credentials can use
        it.
        """
        usable = [path.server for path in self.paths if path.usable and not path.refuses_node]
        usable = usable or [path.server for path in self.paths if path.usable]
        if not usable:
            return None
        if self.order == "priority":
            return usable[0]
        self._chosen += 1
        return usable[self._chosen % len(usable)]

    def find(self, name: str) -> ServerHealth | None:
        for health in (*self.servers, *self.borrowed):
            if health.server.name == name:
                return health
        return None
