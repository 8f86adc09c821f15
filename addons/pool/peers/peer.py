"""Another hub from which this hub requests something: its health, and its last answer to a probe. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.link.timeouts import TimeoutEstimator
from addons.pool.deputies import MAX_LENDERS, parse_deputies
from addons.pool.spread import SPREAD
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, LENDERS_HEADER, SHARES_HEADER
from addons.rules.shared_kinds import is_opt_in
from addons.rules.table import MAX_RESOURCES
from kube.errors import parse_status
from kube.http.client import RawResponse
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

PROBE_INTERVAL = 3.5
"""Seconds between probes of a peer: with the timeout the hub notices a black hole within 6 s."""
PROBE_TIMEOUT = 1.9
"""Seconds without an answer to a probe after which the hub stops using a peer."""
FIRST_RETRY_DELAY = 0.5
"""Seconds until a peer that failed once is retried, doubled after each further failure."""
FORGET_FAILURES_AFTER = 60.0
"""Seconds without a failure after which the failures of a peer are forgotten."""
YURTHUB_OFFLINE_BODY = b"local proxy does not support request"
"""The body of a YurtHub's answer to a probe while it cannot reach the cloud."""
YURTHUB_COPY_AGE = 1.0
"""The assumed age in seconds of the copy of a YurtHub that has lost the cloud: a YurtHub does not report it."""


class PeerRole(StrEnum):
    """The purposes for which this hub uses a peer. If a peer has several, the first one counts."""

    LEADER = "leader"
    """Serves shared resources of this hub's pool."""
    DEPUTY = "deputy"
    """A follower that serves in place of a failed leader."""
    RELAY = "relay"
    """A hub beside the API servers that serves every node with all resources that pools may share."""
    NEIGHBOUR = "neighbour"
    """Serves only the reports on its node's pods."""


class PeerAnswer(NamedTuple):
    """A peer's answer to a probe."""

    why_unfit: str = ""
    """Why no resource can be read from the peer; "" if it serves."""
    age: float = 0.0
    """Seconds since the peer lost the cloud; 0 while it has the cloud or does not report it."""
    deputies: tuple[LeaderHub, ...] = ()
    """The followers that serve if it fails."""
    lenders: tuple[LeaderHub, ...] = ()
    """The followers that lend their link to the cloud."""
    shares: frozenset[str] = frozenset()
    """The resources that it serves in addition to those of all leaders, as `resource.group`."""


EMPTY_ANSWER = PeerAnswer()


@dataclass(slots=True, eq=False)
class PeerHub:
    """A hub at one address. `addons.pool.peers.peer_probes.Peers` creates and probes it."""

    health: ServerHealth
    role: PeerRole = field(default=PeerRole.NEIGHBOUR, init=False)
    said: PeerAnswer = field(default=EMPTY_ANSWER, init=False)
    usable_from: float = field(default=0.0, init=False)
    """Monotonic seconds from which a recovered peer may be used again."""
    probed_at: float = field(default=float("-inf"), init=False)
    """Monotonic seconds at which the last probe began."""
    _failures: int = field(default=0, init=False)
    _failed_at: float = field(default=float("-inf"), init=False)

    @classmethod
    def at(cls, server: Server) -> PeerHub:
        """Return a peer that has not answered yet. Its first good answer makes it usable; `usable_from` spreads its
        readers over time."""
        return cls(ServerHealth(server, TimeoutEstimator(PROBE_INTERVAL, PROBE_TIMEOUT), recovery=1))

    @property
    def server(self) -> Server:
        return self.health.server

    @property
    def node(self) -> str:
        return self.server.node

    @property
    def name(self) -> str:
        """The peer's name in logs and pages: `leader n2`, `deputy n3`, or the name of a relay."""
        return self.node if self.role is PeerRole.RELAY else f"{self.role} {self.node}"

    @property
    def failure(self) -> str:
        """Why the peer is unusable; "" while it may be used."""
        return self.health.reason

    @property
    def age(self) -> float:
        """Seconds since the peer lost the cloud, by its own report; 0 while it has the cloud or has failed."""
        return 0.0 if self.failure else self.said.age

    @property
    def return_within(self) -> float:
        """Seconds after which a failed peer is probed again."""
        return min(SPREAD, FIRST_RETRY_DELAY * 2.0 ** min(max(self._failures - 1, 0), 10))

    def is_usable(self, now: float) -> bool:
        return self.health.usable and self.usable_from <= now

    def serves(self, type_: ResourceType) -> bool:
        return not is_opt_in(type_) or type_.group_resource in self.said.shares

    def failed(self, why: str, now: float) -> None:
        """Record a failure of the peer at `now`, in monotonic seconds."""
        self._failures = 1 if now - self._failed_at > FORGET_FAILURES_AFTER else self._failures + 1
        self._failed_at = now
        self.health.failed(why or "it gave no answer")

    def answered(self, said: PeerAnswer, now: float) -> None:
        """Record a good answer to a probe at `now`, in monotonic seconds."""
        if self.failure:
            self.usable_from = now + random.uniform(0, self.return_within)
        self.health.succeeded()
        self.said = said

    def describe(self, now: float) -> dict[str, Any]:
        """Return the peer's state for the debug page."""
        return {
            "node": self.node,
            "server": str(self.server),
            "isDeputy": self.role is PeerRole.DEPUTY,
            "usable": self.is_usable(now),
            "failure": self.failure,
            "usableInSeconds": round(max(0.0, self.usable_from - now), 1),
            "ageSeconds": self.age,
        }


def read_answer(answer: RawResponse) -> PeerAnswer:
    deputies, lenders = (answer.headers.get(header, "") for header in (DEPUTIES_HEADER, LENDERS_HEADER))
    shares = answer.headers.get(SHARES_HEADER, "").split(",", MAX_RESOURCES + 1)
    return PeerAnswer(
        _why_unfit(answer),
        _age_in(answer),
        parse_deputies(deputies),
        parse_deputies(lenders, MAX_LENDERS),
        frozenset(shares[: MAX_RESOURCES + 1]) - {""},
    )


def _why_unfit(answer: RawResponse) -> str:
    """Return why an answer to a probe shows an unusable peer, "" for a usable one. A hub answers 404; a YurtHub relays
    the probe to the cloud, which answers 200."""
    if _is_of_lone_yurthub(answer) or answer.status in (200, 404):
        return ""
    return parse_status(answer.body, answer.status).message


def _age_in(answer: RawResponse) -> float:
    if _is_of_lone_yurthub(answer):
        return YURTHUB_COPY_AGE
    said = answer.headers.get(AGE_HEADER, "")
    return float(said[:9]) if said.isdecimal() else 0.0


def _is_of_lone_yurthub(answer: RawResponse) -> bool:
    """True for the response of a YurtHub without its cloud, to a path that only the cloud answers."""
    return AGE_HEADER not in answer.headers and answer.status == 400 and YURTHUB_OFFLINE_BODY in answer.body
