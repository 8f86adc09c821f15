"""Selects the server from which a follower reads each shared resource, and moves its sources when peers fail and
recover."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from addons.link.servers import Server, parse_relays
from addons.pool.deputies import deputies_for
from addons.pool.peer_reader import PeerReader, SharedSources, why_moved
from addons.pool.peers.choice import CLOUD, Choice, choose
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer import PROBE_INTERVAL, PeerAnswer, PeerHub, PeerRole
from addons.pool.peers.peer_probes import TICK, Peers, ProbeRequest
from addons.pool.pool_config import NO_POOL, PoolConfig, Role
from addons.pool.spread import SHORTEST_WAIT, CloudSlots, cloud_slot, leader_order
from addons.requests.headers import LENDS_HEADER, PEER_HEADER
from addons.rules.shared_kinds import is_opt_in
from addons.telemetry import metrics
from addons.telemetry.labels import group_resource_label
from addons.views.source import Source
from kube.concurrency.notifier import Notifier, completes_within
from kube.http.client import Client
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

UNANNOUNCED_PROBE_INTERVAL = 60.0
"""Seconds between probes of a leader from which this hub reads nothing, until it has announced which further resources
it serves."""
ROLE_TIMEOUT = 3.0
"""Seconds from the start for which shared sources wait until this node knows its role. Then they read from the cloud,
in the node's slot."""
NEWS_WAIT, NEWS_INTERVAL = 2.0, 0.5
"""Seconds for which the hub still reads from a leader that had lost the cloud too after the cloud is back, and seconds
between probes of that leader meanwhile. Such a leader reaches the cloud again at about the same time."""

logger = logging.getLogger(__name__)


class LeaderSelector:
    """Selects the peer, or the cloud, from which each shared resource is read. A `addons.pool.peer_reader.Chooser`."""

    def __init__(
        self,
        own: OwnPeer,
        peers: Peers,
        shared: SharedSources,
        cloud_is_up: Callable[[], bool],
        wall_clock: Callable[[], float] = time.time,
        relays: Sequence[Server] = (),
    ) -> None:
        """`wall_clock` returns Unix seconds. `relays` are the relays of the option `--relay`; if empty, the pool's
        ConfigMap names them."""
        self.own = own
        self._node = own.node
        self.peers = peers
        self._shared = shared
        self._cloud_is_up = cloud_is_up
        self._clock = clock = peers.clock
        self._given_relays = tuple(relays)
        self.renamed = Notifier()
        """Notified when a leader names other deputies: this node may have become a deputy, or have ceased to be one."""
        self._role = Role.NONE
        self._config = NO_POOL
        self._members: Collection[str] = ()
        self._can_serve = self._can_follow = False
        self._order: list[PeerHub] = []
        self._slots = CloudSlots(clock, wall_clock)
        self._slots.slot = cloud_slot(own.node, ())
        self._followed: set[ResourceType] = set()
        """The resources last read from a leader. The hub reads them from the cloud in its slot only."""
        self._had_cloud, self._cloud_since = True, float("-inf")
        self._is_known = False
        """Whether the hub knows its role in the pool. Until then it may be a follower."""
        self._known_by = clock() + ROLE_TIMEOUT
        self._changed = Notifier()

    @property
    def has_leader(self) -> bool:
        now = self._clock()
        return any(peer.is_usable(now) for peer in self._order)

    @property
    def is_alone(self) -> bool:
        """Whether this hub reads from no other hub and no other hub reads from it."""
        return self._is_known and self._role is Role.NONE and not self._order

    @property
    def lenders(self) -> list[LeaderHub]:
        """The hubs that lend their link to the cloud, as the leaders' answers name them."""
        lenders = (lender for peer in self._order for lender in peer.said.lenders)
        return [*(deputy for peer in self._leaders for deputy in peer.said.deputies), *lenders]

    @property
    def serves(self) -> bool:
        """Whether this hub serves the pool, as a leader or as a deputy."""
        return self._role is Role.LEADER or self.is_deputy

    @property
    def is_deputy(self) -> bool:
        """Whether a leader names this node as its deputy."""
        return self._can_serve and any(deputy.node == self._node for deputy in self._deputies())

    def reader_of(self, source: Source) -> PeerReader | None:
        """Return a reader for a new source, or None if the pool cannot share the source."""
        if not self._shared.may_have(source):
            return None
        return PeerReader(source.list_watch.type, source.client, self, lambda: source.store.newest_given)

    def attach_reader(self, source: Source) -> None:
        """Make a new source read through the pool, if the pool can share it."""
        source.reflector.upstream = self.reader_of(source)

    def update(
        self,
        role: Role,
        config: PoolConfig,
        members: Collection[str],
        *,
        can_follow: bool = True,
        can_serve: bool = False,
    ) -> None:
        """Apply the pool's configuration, and move the affected sources.

        `can_follow`: whether the node has a client certificate, which leaders and relays require. `can_serve`: whether
        this hub's own peer port is open.
        """
        was_alone, self._is_known = self.is_alone, True
        self._role, self._config, self._members = role, config, members
        self._can_follow, self._can_serve = can_follow, can_serve
        if members:  # nodes that are in no pool any more go to the cloud as they would have in their last one
            leaders = {leader.node for leader in config.leaders}
            self._slots.slot = cloud_slot(self._node, [member for member in members if member not in leaders])
        self._arrange()
        if was_alone and not self.is_alone:
            for source, _ in self._shared.readers():
                source.reflector.remind()

    def share(self) -> None:
        """Attach readers to running sources of resources that the rules have just added to the shared ones."""
        for source in self._shared.sources:
            if source.reflector.upstream is None and (reader := self.reader_of(source)) is not None:
                source.reflector.upstream = reader
                source.reflector.switch()

    def _arrange(self) -> None:
        """Sort the servers by preference."""
        former = self._order
        named = [leader for leader in self._config.leaders if leader.node != self._node]
        if self._role is not Role.FOLLOWER:
            named = []
        leaders = self._used(PeerRole.LEADER, map(self._server, leader_order(named, self._node)))
        relays = self._used(PeerRole.RELAY, self._relays() if self._can_follow else ())
        self._order = [*leaders, *relays]
        named = deputies_for(self._node, self._deputies(), self._members, can_serve=self._can_serve)
        deputies = self._used(PeerRole.DEPUTY, map(self._server, named))
        self._order = [*leaders, *deputies, *relays]
        # Open streams to a leader that is named no longer end with the move of their sources.
        for peer in former:
            if peer not in self._order:
                self.peers.leave(self, peer.server)
        self._changed.notify()
        self.balance()

    def _used(self, role: PeerRole, servers: Iterable[Server]) -> list[PeerHub]:
        return [self.peers.use(self, server, role) for server in servers]

    def _server(self, hub: LeaderHub) -> Server:
        return Server("https", hub.address, self.own.port, hub.node)

    async def run(self) -> None:
        """Move sources when a slot begins or a leader recovers, until cancelled."""
        while True:
            await self._changed_within(min(TICK, self._slots.next_in))
            self.balance()

    async def server(self, reader: PeerReader, *, resumes: bool) -> PeerHub | None:
        """Wait until the reader may read from a server; return that peer, or None for the cloud."""
        choice = self._choose(reader, resumes=resumes)
        if choice == CLOUD and self._slots.has_missed(reader.type):
            self._slots.forget(reader.type)
            choice = self._choose(reader, resumes=resumes)
        while choice.wait:
            await self._changed_within(choice.wait)
            choice = self._choose(reader, resumes=resumes)
        if choice == CLOUD:
            self._slots.mark_used(reader.type)
        return choice.peer

    async def _changed_within(self, seconds: float) -> None:
        # A timer may fire a nanosecond early: on a coarse clock the rest would be waited for without end.
        await completes_within(max(seconds, SHORTEST_WAIT), self._changed.wait())

    async def leader(self) -> Client | None:
        """Return a client of the leader, or deputy, that serves resources which are the same for every node; None for
        the cloud. Wait first until this hub knows its pool."""
        while not self._is_known and (left := self._known_by - self._clock()) > 0:
            await self._changed_within(left)
        now = self._clock()
        able = (peer for peer in self._order if peer.is_usable(now) and not peer.age)
        peer = next((peer for peer in able if peer.role is not PeerRole.RELAY), None)
        return self.peers.client.at(str(peer.server)) if peer is not None else None

    def can_bypass(self, reader: PeerReader) -> bool:
        """Whether a server is available whose history reaches back to the reader's version."""
        now = self._clock()
        return self._cloud_is_up() or any(
            peer.is_usable(now) and reader.may_resume(peer) for peer in self._order
        )

    def leave(self, peer: PeerHub, why: str) -> None:
        """Stop reading from a peer that failed to serve."""
        self.peers.failed(peer, why)

    def wants(self, peer: PeerHub) -> ProbeRequest | None:
        """Return the probe of a peer from which sources are read, or which has failed or lost its cloud; None for other
        peers."""
        every = peer.return_within if peer.failure else PROBE_INTERVAL
        every = NEWS_INTERVAL if peer.age and self._is_cloud_new else every
        readers = [reader for _, reader in self._shared.readers()]
        # Probes announce to leaders that this hub lends its link, and leaders name the lenders.
        is_used = self.own.lends() or not self._cloud_is_up() or peer in (reader.peer for reader in readers)
        if not is_used and not peer.said.shares and any(is_opt_in(reader.type) for reader in readers):
            is_used, every = True, max(every, UNANNOUNCED_PROBE_INTERVAL)
        if not (is_used or peer.failure or peer.age):
            return None
        own = [(PEER_HEADER, self.own.address)] if self._can_serve else []
        own += [(LENDS_HEADER, "yes")] if self.own.lends() else []
        return ProbeRequest(every, tuple(own))

    def answered(self, peer: PeerHub, before: PeerAnswer) -> None:
        """Apply the deputies and the state in a peer's answer to a probe."""
        if peer.role is PeerRole.LEADER and peer.said.deputies != before.deputies:
            self._arrange()
            self.renamed.notify()
            return
        self._changed.notify()
        self.balance()

    def failed(self, _peer: PeerHub) -> None:
        """Move the sources that read from a failed peer."""
        self._changed.notify()
        self.balance()

    def reads(self, reader: PeerReader, server: str) -> None:
        """Record and log that a reader now reads from a server: the name of a node, or `cloud`."""
        if reader.server == server:
            return
        reader.why = why_moved(reader, server, self._order)
        reader.server, reader.since = server, time.time()
        logger.info("%s: read from %s: %s", reader.type.group_resource, server, reader.why)
        metrics.SOURCE_SERVER.clear()
        for _, opened in self._shared.readers():
            if opened.server:
                resource = group_resource_label(opened.type.group, opened.type.resource)
                metrics.SOURCE_SERVER.labels(resource, opened.server).inc()

    def balance(self) -> None:
        """Switch each source whose selected server differs from the one that it reads from."""
        had_cloud, self._had_cloud = self._had_cloud, self._cloud_is_up()
        if self._had_cloud and not had_cloud:
            self._cloud_since = self._clock()
        for source, reader in self._shared.readers():
            choice = self._choose(reader, resumes=reader.resumes)
            if reader.server and not choice.wait and choice.peer is not reader.peer:
                if choice == CLOUD:
                    self._slots.mark_used(reader.type)
                source.reflector.switch()

    def describe(self) -> list[dict[str, Any]]:
        """Return the leaders, deputies and relays by preference, for the debug page."""
        now = self._clock()
        return [
            {
                **peer.describe(now),
                "sources": [
                    read.type.group_resource for _, read in self._shared.readers() if read.peer is peer
                ],
            }
            for peer in self._order
        ]

    def describe_sources(self) -> list[dict[str, Any]]:
        """Return the server of each shared source, since when, and why it left the previous one, for the debug page."""
        return [reader.describe() for _, reader in self._shared.readers() if reader.server]

    def _choose(self, reader: PeerReader, *, resumes: bool) -> Choice:
        type_, now, cloud_from = reader.type, self._clock(), 0.0
        if not self._is_known and now < self._known_by:
            return Choice(None, self._known_by - now)
        # A hub that does not know its pool yet may be one of many that start at once.
        follows = self._role is Role.FOLLOWER and self._config.shares(type_)
        follows |= not self._is_known
        serving = [peer for peer in self._order if peer.serves(type_)]
        able = [peer for peer in serving if not resumes or reader.may_resume(peer)]
        order = [peer for peer in able if follows or peer.role is PeerRole.RELAY]
        if self._role is Role.LEADER:
            self._followed.clear()
        if any(peer.is_usable(now) and not peer.age for peer in order):
            self._followed.add(type_)
            self._slots.forget(type_)
        elif not (follows or type_ in self._followed):
            return CLOUD
        elif self._is_cloud_new and any(peer.is_usable(now) for peer in order):
            cloud_from = self._cloud_since + NEWS_WAIT
        elif self._cloud_is_up():
            cloud_from = self._slots.begin_at(type_, at_once=self._is_first_deputy())
        else:
            # A slot in an outage does not count: else all followers would begin at once when the cloud is back.
            self._slots.forget(type_)
        choice = choose(order, now, cloud_is_up=self._cloud_is_up(), cloud_from=cloud_from)
        if not follows and choice == CLOUD:
            self._followed.discard(type_)
            self._slots.forget(type_)
        return choice

    @property
    def _is_cloud_new(self) -> bool:
        return self._cloud_is_up() and self._clock() < self._cloud_since + NEWS_WAIT

    def _deputies(self) -> list[LeaderHub]:
        """Return the deputies that this follower's leaders name. Omit a deputy at the address of another server of the
        pool: TLS to that address would expect the deputy's certificate, and refuse the server's own."""
        if not self._config.has_deputies:
            return []
        taken = {peer.server.host for peer in self._order if peer.role is not PeerRole.DEPUTY}
        leaders = {leader.node for leader in self._config.leaders}
        named = (deputy for peer in self._leaders for deputy in peer.said.deputies)
        return [deputy for deputy in named if deputy.node not in leaders and deputy.address not in taken]

    def _is_first_deputy(self) -> bool:
        first = {peer.said.deputies[0].node for peer in self._leaders if peer.said.deputies}
        return self.is_deputy and self._node in first

    @property
    def _leaders(self) -> list[PeerHub]:
        return [peer for peer in self._order if peer.role is PeerRole.LEADER]

    def _relays(self) -> tuple[Server, ...]:
        """Return the operator's relays, else those of the pool's ConfigMap; none if the ConfigMap names them
        wrongly."""
        if self._given_relays:
            return self._given_relays
        try:
            return parse_relays(self._config.relay)
        except ValueError as error:
            logger.warning("the pool's ConfigMap: %s", error)
            return ()
