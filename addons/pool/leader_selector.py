"""Keeps the shared sources of a follower at the best server: probes leaders, and moves sources between servers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from addons.link.health import ServerHealth
from addons.link.probes import ask
from addons.link.servers import Server, parse_relays
from addons.link.timeouts import TimeoutEstimator
from addons.pool.deputies import ANY_ADDRESS, deputies_for
from addons.pool.leaders import CLOUD, Choice, LeaderState, choose, read_probe
from addons.pool.peer_reader import PeerReader, why_moved
from addons.pool.pool_config import NOTHING_SHARED, PoolConfig, Role, hub_of
from addons.pool.spread import SHORTEST_WAIT, CloudSlots, cloud_slot, leader_order
from addons.requests.headers import LENDS_HEADER, PEER_HEADER
from addons.requests.route_decision import PEER_PROBE_PATH
from addons.rules.shared_kinds import is_further, whole
from addons.telemetry import metrics
from addons.telemetry.labels import group_resource_label
from addons.views.source import Source
from kube.concurrency.notifier import Notifier, comes_within
from kube.http.client import Client, Unreachable
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

PROBE_INTERVAL = 3.5
"""Seconds between probes of a leader: with TICK and the timeout the hub notices a black hole within 6 s."""
PROBE_TIMEOUT = 1.9
"""Seconds without a word of a leader that was probed, after which the hub leaves it."""
UNTOLD_INTERVAL = 60.0
"""Like PROBE_INTERVAL, for a leader that is not read from and has not said what it serves besides what all do."""
KNOW_WAIT = 3.0
"""Seconds from the start for which shared sources wait to learn whether this node follows a leader. Then they go to
the cloud in the node's turn."""
TICK = 0.25
"""Seconds between looks whether a source should be read from elsewhere, and whether a probe is due."""

logger = logging.getLogger(__name__)


class LeaderSelector:
    """Selects the leader that each shared resource is read from. A `addons.pool.peer_reader.Chooser`."""

    def __init__(
        self,
        node: str,
        port: int,
        client: Client,
        sources: Iterable[Source],
        cloud_is_up: Callable[[], bool],
        cut: Callable[[Server], int],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        relays: Sequence[Server] = (),
        address: str = ANY_ADDRESS,
        lends: Callable[[], bool] = lambda: False,
        further: Callable[[], Collection[ResourceType]] = tuple,
    ) -> None:
        """`port` is the peer port of all hubs of a pool. `client` sends with the hub's identity. `cut` closes the
        connections to a server. `clock` is monotonic, `wall_clock` shows Unix seconds. `relays` are those of the
        operator; without any, the pool's. `address` is that of this hub's peer port; `lends`: it has a way to lend.
        `further` is what the rules have pools share."""
        self.peers: dict[str, ServerHealth] = {}
        """The servers that the link may send to besides the cloud's, by their URLs."""
        self._node = node
        self._port = port
        self._client = client
        self._sources = sources
        self._cloud_is_up = cloud_is_up
        self._cut = cut
        self._clock = clock
        self._given_relays = tuple(relays)
        self._address, self._lends, self._further = address, lends, further
        self.renamed = Notifier()
        """Notified when a leader names other deputies: this node may become one, or cease to be one."""
        self._role = Role.NONE
        self._config = NOTHING_SHARED
        self._members: Collection[str] = ()
        self._can_serve = self._can_follow = False
        self._order: list[LeaderState] = []
        self._slots = CloudSlots(clock, wall_clock)
        self._slots.slot = cloud_slot(node, ())
        self._followed: set[ResourceType] = set()
        """The resources last read from a leader: the hub goes to the cloud for it only in its slot."""
        self._is_known = False
        """Whether the hub knows its pool. Until then it may be a follower."""
        self._known_by = clock() + KNOW_WAIT
        self._changed = Notifier()
        self._probes: dict[LeaderState, asyncio.Task[None]] = {}

    @property
    def has_leader(self) -> bool:
        now = self._clock()
        return any(state.is_usable(now) for state in self._order)

    @property
    def is_alone(self) -> bool:
        """Whether this hub reads from no other hub, and none from it."""
        return self._is_known and self._role is Role.NONE and not self._order

    @property
    def lenders(self) -> list[LeaderHub]:
        """Hubs that may lend their way to the cloud, as leaders name them."""
        return [deputy for state in self._order for deputy in (*state.deputies, *state.lenders)]

    @property
    def serves(self) -> bool:
        """Whether this hub serves the pool: it leads, or is a deputy."""
        return self._role is Role.LEADER or self.is_deputy

    @property
    def is_deputy(self) -> bool:
        """Whether a leader names this node as one that serves in its place."""
        return self._can_serve and any(deputy.node == self._node for deputy in self._deputies())

    def reader_of(self, source: Source) -> PeerReader | None:
        """The reader of a new source, where a pool could share it."""
        wanted = source.list_watch
        if source.user or wanted != whole(wanted.type, wanted.encoding):
            return None
        if is_further(wanted.type) and wanted.type not in self._further():
            return None
        return PeerReader(wanted.type, source.client, self, lambda: source.store.newest_given)

    def update(
        self,
        role: Role,
        config: PoolConfig,
        members: Collection[str],
        *,
        can_follow: bool = True,
        can_serve: bool = False,
    ) -> None:
        """Take what the pool is now, and move the sources that it concerns.

        `can_follow`: the node has a client certificate, which leaders and relays ask for. `can_serve`: this hub's own
        peer port is open.
        """
        was_alone, self._is_known = self.is_alone, True
        self._role, self._config, self._members = role, config, members
        self._can_follow, self._can_serve = can_follow, can_serve
        if members:  # nodes that are in no pool any more go to the cloud as they would have in their last one
            leaders = {leader.node for leader in config.leaders}
            self._slots.slot = cloud_slot(self._node, [member for member in members if member not in leaders])
        self._arrange()
        if was_alone and not self.is_alone:
            for source, _ in self._readers():
                source.reflector.remind()

    def share(self) -> None:
        """Move the sources that run, and that the rules have pools share from now on."""
        for source in self._sources:
            if source.reflector.upstream is None and (reader := self.reader_of(source)) is not None:
                source.reflector.upstream = reader
                source.reflector.switch()

    def _arrange(self) -> None:
        """Put the servers into their order of preference, and probe each of them."""
        others = [leader for leader in self._config.leaders if leader.node != self._node]
        if self._role is not Role.FOLLOWER:
            others = []
        states = {(state.leader, state.is_deputy): state for state in self._order}
        relays = self._relays(self._config) if self._can_follow else ()
        self._order = [
            *(
                states.get((leader, False)) or self._new_state(leader)
                for leader in leader_order(others, self._node)
            ),
            *(
                states.get((hub_of(relay), False)) or self._new_state(hub_of(relay), relay)
                for relay in relays
            ),
        ]
        deputies = deputies_for(self._node, self._deputies(), self._members, can_serve=self._can_serve)
        for deputy in reversed(deputies):
            state = states.get((deputy, True)) or self._new_state(deputy, is_deputy=True)
            self._order.insert(len(others), state)
        # Open streams to a leader that is named no longer end with the move of their sources.
        self.peers = {str(state.server): state.health for state in self._order}
        for state in [state for state in self._probes if state not in self._order]:
            self._probes.pop(state).cancel()
        for state in self._order:
            if state not in self._probes:
                name = f"probe of {state.name}"
                self._probes[state] = asyncio.create_task(self._probe_always(state), name=name)
        self._changed.notify()
        self.balance()

    async def run(self) -> None:
        """Move sources as time passes and leaders come back, until cancelled."""
        while True:
            await self._changed_within(min(TICK, self._slots.next_in))
            self.balance()

    def close(self) -> None:
        for task in self._probes.values():
            task.cancel()

    async def server(self, reader: PeerReader, *, resumes: bool) -> LeaderState | None:
        """The leader to read from, None for the cloud. Returns when it may be read from."""
        choice = self._choose(reader, resumes=resumes)
        if choice == CLOUD and self._slots.has_missed(reader.type):
            self._slots.forget(reader.type)
            choice = self._choose(reader, resumes=resumes)
        while choice.wait:
            await self._changed_within(choice.wait)
            choice = self._choose(reader, resumes=resumes)
        if choice == CLOUD:
            self._slots.take(reader.type)
        return choice.leader

    async def _changed_within(self, seconds: float) -> None:
        # A timer may fire a nanosecond early: on a coarse clock the rest would be waited for without end.
        await comes_within(max(seconds, SHORTEST_WAIT), self._changed.wait())

    def has_way_past(self, reader: PeerReader) -> bool:
        """Whether a server is there besides the leaders whose history is too short for a reader."""
        now = self._clock()
        return self._cloud_is_up() or any(
            state.is_usable(now) and reader.may_resume(state) for state in self._order
        )

    def failed(self, leader: LeaderState, why: str) -> None:
        """Leave a leader that did not serve."""
        former = leader.failure
        leader.note_failure(why or "it gave no answer", self._clock())
        if former:
            if former != leader.failure:
                logger.info("%s does not serve yet: %s", leader.name, leader.failure)
            return
        logger.warning("%s does not serve any more: %s", leader.name, leader.failure)
        self._cut(leader.server)
        self._changed.notify()
        self.balance()

    def reads(self, reader: PeerReader, server: str) -> None:
        """Note that a reader goes on to read from a server: the name of a node, or `cloud`."""
        if reader.server == server:
            return
        reader.why = why_moved(reader, server, self._order)
        reader.server, reader.since = server, time.time()
        logger.info("%s: read from %s: %s", reader.type.group_resource, server, reader.why)
        metrics.SOURCE_SERVER.clear()
        for _, opened in self._readers():
            if opened.server:
                resource = group_resource_label(opened.type.group, opened.type.resource)
                metrics.SOURCE_SERVER.labels(resource, opened.server).inc()

    def balance(self) -> None:
        """Move each source that should be read from elsewhere now."""
        for source, reader in self._readers():
            choice = self._choose(reader, resumes=reader.resumes)
            if reader.server and not choice.wait and choice.leader is not reader.leader:
                if choice == CLOUD:
                    self._slots.take(reader.type)
                source.reflector.switch()

    def describe(self) -> list[dict[str, Any]]:
        """The leaders, deputies and relays in the order of preference, for the debug page."""
        now = self._clock()
        return [
            {
                **state.describe(now),
                "sources": [read.type.group_resource for _, read in self._readers() if read.leader is state],
            }
            for state in self._order
        ]

    def describe_sources(self) -> list[dict[str, Any]]:
        """From where the hub reads each shared source, since when, and why it left the server before."""
        return [reader.describe() for _, reader in self._readers() if reader.server]

    def _readers(self) -> Iterator[tuple[Source, PeerReader]]:
        for source in self._sources:
            reader = source.reflector.upstream
            if isinstance(reader, PeerReader):
                yield source, reader

    def _choose(self, reader: PeerReader, *, resumes: bool) -> Choice:
        type_, now, cloud_from = reader.type, self._clock(), 0.0
        if not self._is_known and now < self._known_by:
            return Choice(None, self._known_by - now)
        # A hub that does not know its pool yet may be one of many that start at once.
        follows = self._role is Role.FOLLOWER and self._config.shares(type_)
        follows |= not self._is_known
        serving = [state for state in self._order if state.serves(type_)]
        able = [state for state in serving if not resumes or reader.may_resume(state)]
        order = [state for state in able if follows or state.is_relay]
        if self._role is Role.LEADER:
            self._followed.clear()
        if any(state.is_usable(now) and not state.age for state in order):
            self._followed.add(type_)
            self._slots.forget(type_)
        elif not (follows or type_ in self._followed):
            return CLOUD
        elif self._cloud_is_up():
            cloud_from = self._slots.begin_at(type_, at_once=self._is_first_deputy())
        else:
            # A turn while the cloud is away counts for nothing, or all that wait for the cloud would begin at once.
            self._slots.forget(type_)
        choice = choose(order, now, cloud_is_up=self._cloud_is_up(), cloud_from=cloud_from)
        if not follows and choice == CLOUD:
            self._followed.discard(type_)
            self._slots.forget(type_)
        return choice

    def _deputies(self) -> list[LeaderHub]:
        """The deputies that this follower's leaders name. None is at the address of another server of the pool: a node
        that says so would have the hub take that server for the node, and refuse its certificate."""
        if not self._config.has_deputies:
            return []
        taken = {state.server.host for state in self._order if not state.is_deputy}
        leaders = {leader.node for leader in self._config.leaders}
        named = (deputy for state in self._order for deputy in state.deputies)
        return [deputy for deputy in named if deputy.node not in leaders and deputy.address not in taken]

    def _is_first_deputy(self) -> bool:
        first = {state.deputies[0].node for state in self._order if state.deputies}
        return self.is_deputy and self._node in first

    def _relays(self, config: PoolConfig) -> tuple[Server, ...]:
        """The operator's relays, else the pool's. Those of a ConfigMap that names them wrongly are none."""
        if self._given_relays:
            return self._given_relays
        try:
            return parse_relays(config.relay)
        except ValueError as error:
            logger.warning("the pool's ConfigMap: %s", error)
            return ()

    def _new_state(
        self, hub: LeaderHub, relay: Server | None = None, *, is_deputy: bool = False
    ) -> LeaderState:
        server = relay or Server("https", hub.address, self._port, hub.node)
        health = ServerHealth(server, TimeoutEstimator(PROBE_INTERVAL, PROBE_TIMEOUT))
        return LeaderState(hub, health, is_relay=relay is not None, is_deputy=is_deputy)

    async def _probe_always(self, state: LeaderState) -> None:
        """Probe a leader that is read from, has failed or is without a cloud, until cancelled."""
        client = self._client.at(str(state.server))
        probed = float("-inf")
        while True:
            await asyncio.sleep(TICK)
            interval = state.return_within if state.failure else PROBE_INTERVAL
            readers = [reader for _, reader in self._readers()]
            # Leaders are told who lends a way, and say it.
            is_used = (
                self._lends() or not self._cloud_is_up() or state in (reader.leader for reader in readers)
            )
            if not is_used and not state.shares and any(is_further(reader.type) for reader in readers):
                is_used, interval = True, max(interval, UNTOLD_INTERVAL)
            if (is_used or state.failure or state.age) and self._clock() - probed >= interval:
                probed = self._clock()
                await self._probe(state, client)

    async def _probe(self, state: LeaderState, client: Client) -> None:
        own = [(PEER_HEADER, self._address)] if self._can_serve else []
        own += [(LENDS_HEADER, "yes")] if self._lends() else []
        try:
            answer = await ask(client, state.health, PEER_PROBE_PATH, own, self._clock)
        except Unreachable as error:
            if not isinstance(error.__cause__, TimeoutError):
                self.failed(state, f"no answer to a probe: {error}")
            return
        probe = read_probe(answer)
        if probe.why_unfit:
            self.failed(state, probe.why_unfit)
        else:
            self._lives(state, probe.age)
            state.lenders = probe.lenders
            if probe.shares != state.shares:
                state.shares = probe.shares
                self._changed.notify()
            self._take_deputies(state, probe.deputies)

    def _lives(self, state: LeaderState, age: float) -> None:
        state.health.succeeded()
        if state.failure:
            state.usable_from = self._clock() + random.uniform(0, state.return_within)
            logger.info("%s answers again: used in %.1f s", state.name, state.usable_from - self._clock())
            state.failure = ""
            self._changed.notify()
        if bool(state.age) != bool(age):
            logger.info("%s %s", state.name, f"has no cloud for {age:g} s" if age else "has a cloud again")
            self._changed.notify()
        state.age = age
        self.balance()

    def _take_deputies(self, leader: LeaderState, deputies: tuple[LeaderHub, ...]) -> None:
        if leader.is_deputy or leader.is_relay or deputies == leader.deputies or leader not in self._order:
            return
        leader.deputies = deputies
        self._arrange()
        self.renamed.notify()
