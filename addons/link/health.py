"""Which servers are up: a table of conditions, updated by probes and by live requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from addons.link.servers import Server, ServerOrder
from addons.link.timeouts import TimeoutEstimator
from addons.link.uplinks.uplink import Uplink, readable_error
from kube.concurrency.notifier import Notifier

ERRORS_IN_A_ROW = 2
"""Answers of 5xx to probes, in a row, that take a server down. A single one proves nothing."""
RECOVERY_SUCCESSES = 2
"""Successes in a row that bring a server of the cloud up again: a link that flaps must not flap the node."""
RETRY_REFUSED = 5
"""Retry-After in seconds of requests that the hub cannot answer while the cloud refuses the node's identity."""


class Condition(StrEnum):
    """The condition of a server."""

    UNKNOWN = "unknown"
    """No probe has returned yet. The server is used: waiting for a probe would slow each start."""
    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"
    """Down, with fewer successes since than its recovery takes."""


SUCCEEDED = {
    Condition.UNKNOWN: Condition.UP,
    Condition.UP: Condition.UP,
    Condition.DOWN: Condition.RECOVERING,
    Condition.RECOVERING: Condition.RECOVERING,
}
"""The next condition after a success; RECOVERING becomes UP after `ServerHealth.recovery`. A failure means DOWN."""


@dataclass(slots=True)
class ServerHealth:
    """One server's condition, and why it is down."""

    server: Server
    timeouts: TimeoutEstimator = field(default_factory=TimeoutEstimator)
    condition: Condition = Condition.UNKNOWN
    reason: str = field(default="", init=False)
    """A sentence, without the numbers of operating systems."""
    has_answered: bool = field(default=False, init=False)
    """Whether the server has ever answered a probe, with whatever status: to open a connection is not enough."""
    heard: float = field(default=float("-inf"), init=False)
    """When the server last sent anything on any connection, in monotonic seconds."""
    asked: float = field(default=float("-inf"), init=False)
    """When the server was first asked something after that, in monotonic seconds."""
    is_erring: bool = field(default=False, init=False)
    """Whether the server has answered a request with 5xx, or not in time, since it was last asked how it is."""
    connections: int = field(default=0, init=False)
    """Open connections to the server."""
    node_failed: float = field(default=float("-inf"), init=False)
    """When a connection last failed for want of something on this node, in monotonic seconds."""
    resolver_failed: float = field(default=float("-inf"), init=False)
    """When the server's name last could not be resolved, in monotonic seconds."""
    down_since: float = field(default=0.0, init=False)
    """When the server last went down, in monotonic seconds; 0 for never."""
    refuses_node: bool = field(default=False, init=False)
    """Whether the server answers, and does not know the node's identity: it has ended, or is none."""
    recovery: int = RECOVERY_SUCCESSES
    """Successes in a row that bring the server up again."""
    _successes: int = field(default=0, init=False)
    _errors: int = field(default=0, init=False)

    @classmethod
    def untried(cls, server: Server, timeouts: TimeoutEstimator) -> ServerHealth:
        """Return the health of a server that is not used until its first answer."""
        made = cls(server, timeouts, Condition.RECOVERING)
        made._successes = RECOVERY_SUCCESSES - 1
        return made

    @property
    def usable(self) -> bool:
        return self.condition in (Condition.UNKNOWN, Condition.UP)

    @property
    def silence(self) -> float:
        """Seconds of silence after which a server that owes an answer counts as gone."""
        return self.timeouts.silence if self.condition is Condition.UP else self.timeouts.first_silence

    def was_asked(self, now: float) -> None:
        """Note that the server was asked something."""
        if self.asked <= self.heard:
            self.asked = now

    def due(self, last: float) -> float:
        """The time of the next probe of a healthy server, by its last answer and its last probe."""
        due = last + self.timeouts.interval
        return due if self.asked <= last else min(due, self.asked + self.timeouts.patience)

    def succeeded(self) -> bool:
        """Note a success; True when it makes the server usable."""
        was = self.usable
        self.has_answered = True
        self._successes += 1
        self._errors = 0
        self.condition = SUCCEEDED[self.condition]
        if self.condition is Condition.RECOVERING and self._successes >= self.recovery:
            self.condition = Condition.UP
        if self.condition is Condition.UP:
            self.reason = ""
        return self.usable and not was

    @property
    def doubtful(self) -> bool:
        """Whether the server is up although its last answer to a probe was an error."""
        return self.usable and self._errors > 0

    def erred(self, reason: str) -> bool:
        """Note an answer of 5xx to a probe; True when it makes the server unusable."""
        self.has_answered = True
        self._errors += 1
        return self.failed(reason) if self._errors >= ERRORS_IN_A_ROW or not self.usable else False

    def failed(self, reason: str) -> bool:
        """Note a failure; True when it makes the server unusable."""
        was = self.usable
        if was:
            self.down_since = time.monotonic()
        self._successes = 0
        self.condition, self.reason = Condition.DOWN, readable_error(reason)
        return was


@dataclass(slots=True)
class Cloud:
    """The servers of the cloud, and the choice among those that are up."""

    servers: list[ServerHealth]
    """Each by the node's own link, or by each of its uplinks, the preferred one first."""
    order: ServerOrder
    uplink: Uplink | None = None
    """The uplink in use, while it reaches a server; None if the routes of the node decide."""
    borrowed: tuple[ServerHealth, ...] = ()
    """The servers through other hubs of the pool, which `addons.pool.shared_links` borrows or tries."""
    changed: Notifier = field(default_factory=Notifier, init=False)
    """Notified when a server comes up or goes down."""
    _chosen: int = field(default=0, init=False)

    @classmethod
    def by(
        cls, servers: Sequence[Server], uplinks: Sequence[Uplink], order: ServerOrder, *times: float
    ) -> Cloud:
        """The servers, each by each uplink. `times` are the interval and the time-out of their probes."""
        paths = [(server, uplink) for uplink in uplinks or (None,) for server in servers]
        states = [
            ServerHealth(replace(server, uplink=uplink), TimeoutEstimator(*times)) for server, uplink in paths
        ]
        return cls(states, order, next(iter(uplinks), None))

    @property
    def uplinks(self) -> Sequence[Uplink]:
        """In the order of preference."""
        return list(
            dict.fromkeys(server.server.uplink for server in self.servers if server.server.uplink is not None)
        )

    def leads(self, uplink: Uplink) -> bool:
        return any(server.usable for server in self.servers if server.server.uplink == uplink)

    @property
    def leading_uplink(self) -> Uplink | None:
        """Return the uplink in use, or the first one that reaches a server if it reaches none; None if none does."""
        if self.uplink is None:
            return None
        return next(filter(self.leads, (self.uplink, *self.uplinks)), None)

    @property
    def own_paths(self) -> Sequence[ServerHealth]:
        """The servers as they are reached without a lender."""
        if self.uplink is None:
            return self.servers
        uplink = self.leading_uplink or self.uplink
        return [server for server in self.servers if server.server.uplink == uplink]

    def is_spare(self, health: ServerHealth) -> bool:
        """Whether this is an uplink that waits until a better one is gone."""
        uplinks, used = self.uplinks, self.leading_uplink
        if used is None or health.server.uplink is None:
            return False
        return uplinks.index(health.server.uplink) > uplinks.index(used)

    @property
    def has_own_path(self) -> bool:
        """Whether a server is reached by this node's own link."""
        return any(server.usable for server in self.servers)

    @property
    def paths(self) -> Sequence[ServerHealth]:
        """The servers as they are reached now: a borrowed link counts until it is given back, or fails."""
        if self.borrowed and any(state.usable for state in self.borrowed):
            return self.borrowed
        return self.own_paths

    @property
    def lender(self) -> str:
        """The node whose link is used; "" for this node's own."""
        server = self.paths[0].server if self.paths else None
        return server.lender.node if server is not None and server.lender is not None else ""

    @property
    def is_up(self) -> bool:
        """Whether there is a cloud for the node: a server that can be reached, and takes the node's identity."""
        return any(path.usable and not path.refuses_node for path in self.paths)

    @property
    def is_reachable(self) -> bool:
        """Whether there is a cloud for callers with credentials of their own."""
        return any(path.usable for path in self.paths)

    @property
    def seconds_away(self) -> float | None:
        """Seconds since no server can be reached; None if one can."""
        if self.is_reachable:
            return None
        return time.monotonic() - max(server.down_since for server in self.servers)

    @property
    def reasons(self) -> str:
        """Why there is none, server by server."""
        reasons = ((server.server, self.refusal or server.reason) for server in self.servers)
        return "; ".join(f"{server}: {why}" for server, why in reasons if why)

    @property
    def refusal(self) -> str:
        """Why there is none for the node although servers answer; "" otherwise."""
        if self.is_up or not self.is_reachable:
            return ""
        return "the cloud does not accept the node's identity: its certificate or token may have ended"

    def choose(self) -> Server | None:
        """Choose a usable server, by `order`: the first in the list, or round robin. None if all are down.

        A server that refuses the node counts as down, but callers with credentials of their own may use it.
        """
        usable = [path.server for path in self.paths if path.usable and not path.refuses_node]
        usable = usable or [path.server for path in self.paths if path.usable]
        if not usable:
            return None
        if self.order == "priority":
            return usable[0]
        self._chosen += 1
        return usable[self._chosen % len(usable)]

    def named(self, name: str) -> ServerHealth | None:
        for health in (*self.servers, *self.borrowed):
            if health.server.name == name:
                return health
        return None
