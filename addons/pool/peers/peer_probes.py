"""One prober of all other hubs: each peer has one health and one probe, however many components of this hub use it.

A probe of a peer differs from a probe of the link (`addons.link.probes`), which tests whether a silent server is alive:
in probes of peers, hubs report to each other whether they have the cloud, serve, and lend.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from addons.link.health import ServerHealth
from addons.link.probes import send_probe
from addons.link.servers import Server
from addons.pool.peers.peer import PROBE_INTERVAL, PeerAnswer, PeerHub, PeerRole, read_answer
from addons.requests.route_decision import PEER_PROBE_PATH
from addons.telemetry.background import background
from kube.concurrency.notifier import Notifier, completes_within
from kube.http.client import Client, Unreachable

TICK = 0.25
"""Seconds between checks whether a probe is due."""

logger = logging.getLogger(__name__)


class ProbeRequest(NamedTuple):
    """The probes of a peer that a user of the peer needs now."""

    every: float = PROBE_INTERVAL
    """Seconds between probes."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers with the facts that this hub announces about itself."""


class PeerUser(Protocol):
    """A component of the hub that uses peers."""

    def wants(self, peer: PeerHub) -> ProbeRequest | None:
        """Return the probes of a peer that the component needs now; None if it needs none."""

    def answered(self, peer: PeerHub, before: PeerAnswer) -> None:
        """Handle a peer's answer to a probe; `before` is its previous answer."""

    def failed(self, peer: PeerHub) -> None:
        """Handle the failure of a peer."""


class Peers:
    """The other hubs that components of this hub use. `run` probes them."""

    def __init__(
        self, client: Client, cut: Callable[[Server], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`client` sends requests with the hub's identity. `cut` closes the connections to a server. `clock` is
        monotonic."""
        self.healths: dict[str, ServerHealth] = {}
        """The servers, by URL, to which the link may send besides the cloud's."""
        self.client = client
        self.clock = clock
        self._cut = cut
        self._peers: dict[Server, PeerHub] = {}
        self._users: dict[Server, dict[PeerUser, PeerRole]] = {}
        self._probes: dict[PeerHub, asyncio.Task[None]] = {}
        """The running probes."""
        self._changed = Notifier()

    def use(self, user: PeerUser, server: Server, role: PeerRole = PeerRole.NEIGHBOUR) -> PeerHub:
        """Register a component as user of a peer, until its `leave`, and return the peer."""
        if server not in self._peers:
            self._peers[server] = PeerHub.at(server)
        self._users.setdefault(server, {})[user] = role
        self._arrange()
        return self._peers[server]

    def leave(self, user: PeerUser, server: Server) -> None:
        self._users[server].pop(user)
        if not self._users[server]:
            del self._users[server]
            if (probe := self._probes.pop(self._peers.pop(server), None)) is not None:
                probe.cancel()
        self._arrange()

    def has_lost_cloud(self, node: str) -> bool:
        """Whether a node's hub reports an outage or does not answer. As a lender it is tried last."""
        return any(peer.failure or peer.age for peer in self._peers.values() if peer.node == node)

    async def run(self) -> None:
        """Probe the peers until cancelled."""
        try:
            while True:
                woken = self._changed.wait()
                for server, peer in self._peers.items():
                    wanted = [wish for user in self._users[server] if (wish := user.wants(peer)) is not None]
                    if peer not in self._probes and self._is_due(peer, wanted):
                        probe = background(self._probe(peer, wanted), f"probe of {peer.name}")
                        self._probes[peer] = probe
                await completes_within(TICK if self._peers else None, woken)
        finally:
            for probe in self._probes.values():
                probe.cancel()

    def failed(self, peer: PeerHub, why: str) -> None:
        """Record that a peer failed to serve, and inform its users."""
        former = peer.failure
        peer.failed(why, self.clock())
        if former:
            if former != peer.failure:
                logger.info("%s does not serve yet: %s", peer.name, peer.failure)
            return
        logger.warning("%s does not serve any more: %s", peer.name, peer.failure)
        self._cut(peer.server)
        for user in list(self._users.get(peer.server, ())):
            user.failed(peer)

    def _arrange(self) -> None:
        """Give each peer its most important role. If two peers have one URL, a neighbour yields."""
        for server, peer in self._peers.items():
            peer.role = min(self._users[server].values(), key=list(PeerRole).index)
        ranked = sorted(self._peers.values(), key=lambda peer: peer.role is not PeerRole.NEIGHBOUR)
        self.healths = {str(peer.server): peer.health for peer in ranked}
        self._changed.notify()

    def _is_due(self, peer: PeerHub, wanted: Sequence[ProbeRequest]) -> bool:
        return bool(wanted) and self.clock() - peer.probed_at >= min(wish.every for wish in wanted)

    async def _probe(self, peer: PeerHub, wanted: Sequence[ProbeRequest]) -> None:
        peer.probed_at = self.clock()
        client, own = self.client.at(str(peer.server)), [header for wish in wanted for header in wish.headers]
        try:
            answer = read_answer(await send_probe(client, peer.health, PEER_PROBE_PATH, own, self.clock))
        except Unreachable as error:
            if isinstance(error.__cause__, TimeoutError):
                return  # it answers others all the time
            if peer.failure:
                self._cut(peer.server)  # connections opened since then are dead, too
            self.failed(peer, f"no answer to a probe: {error}")
        else:
            self._take(peer, answer)
        finally:
            self._probes.pop(peer, None)

    def _take(self, peer: PeerHub, answer: PeerAnswer) -> None:
        if answer.why_unfit:
            self.failed(peer, answer.why_unfit)
            return
        was_left, before = bool(peer.failure), peer.said._replace(age=peer.age)
        peer.answered(answer, self.clock())
        if was_left:
            logger.info("%s answers again: used in %.1f s", peer.name, peer.usable_from - self.clock())
        if bool(before.age) != bool(answer.age):
            state = f"has no cloud for {answer.age:g} s" if answer.age else "has a cloud again"
            logger.info("%s %s", peer.name, state)
        for user in list(self._users.get(peer.server, ())):
            user.answered(peer, before)
