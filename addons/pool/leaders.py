"""The state of each leader of the pool, and the choice among leaders and cloud. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.pool.deputies import MAX_LENDERS, parse_deputies
from addons.pool.spread import SPREAD
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, LENDERS_HEADER, SHARES_HEADER
from addons.rules.shared_kinds import is_further
from addons.rules.table import MAX_RESOURCES
from kube.errors import parse_status
from kube.http.client import RawResponse
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

FIRST_RETURN = 0.5
"""Seconds within which the hub goes back to a leader that failed once; twice as many after each further failure."""
LASTING = 60.0
"""Seconds without a failure after which a leader's failures are forgotten."""
LONE_YURTHUB = b"local proxy does not support request"
"""A YurtHub's answer to a probe while it has no cloud."""
UNTOLD_AGE = 1.0
"""Seconds without a cloud of a YurtHub that has lost the cloud. It does not say since when."""


@dataclass(slots=True, eq=False)
class LeaderState:
    """One leader, as the last answers of its peer port show it."""

    leader: LeaderHub
    health: ServerHealth
    failure: str = ""
    """Why the hub has left the leader; "" while the leader may be used."""
    usable_from: float = 0.0
    """When a leader that has recovered may be used again, in monotonic seconds."""
    is_relay: bool = False
    """The hub is a relay, which serves every node and all that pools may share."""
    is_deputy: bool = False
    """The hub is a follower that serves in place of a leader."""
    deputies: tuple[LeaderHub, ...] = ()
    """The deputies that the leader names."""
    lenders: tuple[LeaderHub, ...] = ()
    """Followers of the leader with a way to the cloud that they lend, as it names them."""
    shares: frozenset[str] = frozenset()
    """The resources that it serves besides those of all leaders, as its answers say: `resource.group`."""
    age: float = 0.0
    """Seconds since the leader lost the cloud, by its own word; 0 while it has the cloud."""
    _failures: int = 0
    _failed_at: float = float("-inf")

    @property
    def server(self) -> Server:
        return self.health.server

    @property
    def name(self) -> str:
        """For people: `leader n2`, `deputy n3`, or the own name of a relay."""
        if self.is_relay:
            return self.leader.node
        return f"{'deputy' if self.is_deputy else 'leader'} {self.leader.node}"

    @property
    def return_within(self) -> float:
        """Seconds within which the hub goes back to a leader that has failed, and after which it asks it again."""
        return min(SPREAD, FIRST_RETURN * 2.0 ** min(max(self._failures - 1, 0), 10))

    def is_usable(self, now: float) -> bool:
        return not self.failure and self.usable_from <= now

    def serves(self, type_: ResourceType) -> bool:
        return not is_further(type_) or type_.group_resource in self.shares

    def note_failure(self, why: str, now: float) -> None:
        """The leader did not serve at `now`, in monotonic seconds."""
        self._failures = 1 if now - self._failed_at > LASTING else self._failures + 1
        self._failed_at = now
        self.failure, self.age = why, 0.0
        self.health.failed(why)

    def describe(self, now: float) -> dict[str, Any]:
        """For the debug page."""
        return {
            "node": self.leader.node,
            "server": str(self.server),
            "isDeputy": self.is_deputy,
            "usable": self.is_usable(now),
            "failure": self.failure,
            "usableInSeconds": round(max(0.0, self.usable_from - now), 1),
            "ageSeconds": self.age,
        }


class Probed(NamedTuple):
    why_unfit: str
    """Why the server cannot be read from; "" where it can."""
    age: float
    """Seconds since the server lost the cloud; 0 while it has the cloud, and where it does not say."""
    deputies: tuple[LeaderHub, ...]
    lenders: tuple[LeaderHub, ...] = ()
    shares: frozenset[str] = frozenset()


class Choice(NamedTuple):
    """Where to read from, or how long to wait for a better answer."""

    leader: LeaderState | None
    """None is the cloud."""
    wait: float = 0.0
    """Seconds after which to choose again; 0: go there now."""


CLOUD = Choice(None)


def choose(order: Sequence[LeaderState], now: float, *, cloud_is_up: bool, cloud_from: float) -> Choice:
    """A leader that has the cloud, then the cloud, then the leader that lost the cloud last.

    `order` has the leaders in the order of preference. Before `cloud_from` (monotonic seconds) the hub does not go to
    the cloud, so that the followers of a pool go one after the other.
    """
    usable = [state for state in order if state.is_usable(now)]
    fresh = next((state for state in usable if not state.age), None)
    if fresh is not None:
        return Choice(fresh)
    if cloud_is_up and now >= cloud_from:
        return CLOUD
    if usable:
        return Choice(min(usable, key=lambda state: state.age))
    if not cloud_is_up:
        return CLOUD
    back = (state.usable_from for state in order if not state.failure)
    return Choice(None, min([cloud_from, *back]) - now)


def read_probe(answer: RawResponse) -> Probed:
    deputies, lenders = (answer.headers.get(header, "") for header in (DEPUTIES_HEADER, LENDERS_HEADER))
    shares = answer.headers.get(SHARES_HEADER, "").split(",", MAX_RESOURCES + 1)
    return Probed(
        _why_unfit(answer),
        _age_in(answer),
        parse_deputies(deputies),
        parse_deputies(lenders, MAX_LENDERS),
        frozenset(shares[: MAX_RESOURCES + 1]) - {""},
    )


def _why_unfit(answer: RawResponse) -> str:
    """Hubs answer 404. A YurtHub hands the probe on to the cloud, which answers 200."""
    if _is_of_lone_yurthub(answer) or answer.status in (200, 404):
        return ""
    return parse_status(answer.body, answer.status).message


def _age_in(answer: RawResponse) -> float:
    if _is_of_lone_yurthub(answer):
        return UNTOLD_AGE
    said = answer.headers.get(AGE_HEADER, "")
    return float(said[:9]) if said.isdecimal() else 0.0


def _is_of_lone_yurthub(answer: RawResponse) -> bool:
    """Whether a YurtHub that has lost the cloud answers: the cloud alone knows the path."""
    return AGE_HEADER not in answer.headers and answer.status == 400 and LONE_YURTHUB in answer.body
