"""What a hub knows of each leader of its pool, and the choice among leaders and cloud. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from addons.pool.pool_config import LeaderHub
from addons.upstream.health import ServerHealth
from addons.upstream.servers import Server


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
    age: float = 0.0
    """Seconds since the leader lost the cloud, by its own word; 0 while it has the cloud."""

    @property
    def server(self) -> Server:
        return self.health.server

    @property
    def name(self) -> str:
        """For people: `leader n2`, or the own name of a relay."""
        return self.leader.node if self.is_relay else f"leader {self.leader.node}"

    def is_usable(self, now: float) -> bool:
        return not self.failure and self.usable_from <= now


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
    usable = [each for each in order if each.is_usable(now)]
    fresh = next((each for each in usable if not each.age), None)
    if fresh is not None:
        return Choice(fresh)
    if cloud_is_up and now >= cloud_from:
        return CLOUD
    if usable:
        return Choice(min(usable, key=lambda each: each.age))
    return Choice(None, cloud_from - now) if cloud_is_up else CLOUD
