"""A hub process without sockets: its real parts on a real disk, and the real router's decisions. Its tasks run in their
own context, so that a kill stops them at once: nothing more reaches disk or cloud."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path

from multidict import CIMultiDict

from addons.filters.chain import FILTERS
from addons.link import health
from addons.link.cloud_access import CloudAccess
from addons.link.servers import parse_server
from addons.offline.offline_request import OfflineRequest
from addons.offline.offline_tables import OfflineTables
from addons.parts import Parts, make_parts
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_reader import SharedSources
from addons.pool.peer_serving import PeerServing
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer_probes import Peers
from addons.pool.pool import PEER_KEY
from addons.pool.pool_config import FIRST_SCOPE, NO_POOL, PoolConfig, Role
from addons.requests.answers import Answer, ClientRequest, RelayToCloud
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.clients import Clients
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.route_decision import RouteKind, corrected, decide, is_of_others, may_be_filtered
from addons.settings import parse_settings
from kube.differences.records import are_accepted
from kube.disk.database import Batch, DiskError
from kube.disk.writer import DiskWriter
from kube.errors import StatusError, unavailable
from kube.http.client import RawResponse, Unreachable
from kube.peers import LeaderHub
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.requests.request_info import parse_request
from tests.addons.support.exchange import Exchange
from tests.histories.line import Line, Link
from tests.histories.session import MemorySession

SERVER = "https://cloud:6443"
LEADERS = LeaderHub("n0", "10.0.0.1"), LeaderHub("n4", "10.0.0.4")
type LeaderOf = Callable[[str], Hub | None]
"""The process at an address, None while there is none."""
PROBE = 2.0
"""Seconds between two of a node's checks of its link, and of its resources for the pool."""
DISK_DELAY = 0.002
"""Seconds that the disk takes for one call."""
JSON = {"Accept": "application/json", "Content-Type": "application/json"}
OWNER: contextvars.ContextVar[Hub | None] = contextvars.ContextVar("owner", default=None)
SETTINGS = {"server": SERVER}


class Disk:
    """The disk, which outlives the hub's processes, with the time that each operation takes."""

    def __init__(self) -> None:
        self.delay = DISK_DELAY


class InlineWriter(DiskWriter):
    """Run disk operations in the loop, one after the other; none once the process was killed."""

    def __init__(self, disk: Disk, is_dead: Callable[[], bool]) -> None:
        self._disk, self._is_dead = disk, is_dead
        self._works: deque[Callable[[], None]] = deque()
        self._working: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._works)

    async def do[T](self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self._works.append(run)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await done

    async def _work(self) -> None:
        while self._works:
            await asyncio.sleep(self._disk.delay)
            if self._is_dead():
                await asyncio.Event().wait()
            if self._works:
                self._works.popleft()()

    def close(self, last: Callable[[], None]) -> None:
        if not self._is_dead():
            while self._works:
                self._works.popleft()()
            last()


REFUSALS = frozenset({State.REFUSED, State.UNSERVED})


class Hub:
    """A hub process, from its start to its end or a kill."""

    def __init__(self, node: str, folder: Path, line: Line, disk: Disk, leader_of: LeaderOf) -> None:
        self._settings = parse_settings(SETTINGS | {"state_dir": str(folder), "node": node})
        self.is_dead = False
        self.disk_is_full = False
        self.edits = 0
        """The number of changes of the rules in force."""
        self.failures: list[str] = []
        """Errors that must never occur."""
        self._line = line
        self._session = MemorySession(line, leader_of, lambda: self.is_dead)
        self._clients = Clients(self._session, self._session)
        self.tables = OfflineTables.at(folder / "cache")
        access = self.tables.access
        access.writer.close(lambda: None)
        write = access.disk.write

        def take(batch: Batch, *, is_durable: bool) -> None:
            if self.disk_is_full:
                raise DiskError("database or disk is full")
            write(batch, is_durable=is_durable)

        vars(access.disk)["write"] = take
        access.writer = InlineWriter(disk, lambda: self.is_dead)
        self.health = health.ServerHealth(parse_server(SERVER))
        self.upstream = health.Cloud([self.health], "priority")
        self.parts: Parts
        self.selector: LeaderSelector
        self._relayed: dict[Exchange, ClientRequest] = {}

    @property
    def follows(self) -> bool:
        """Return True if every source follows the cloud, or knows that it may not or need not."""
        return all(_is_settled(each.reflector) for each in self.parts.sources)

    async def start(self, *, leaders: int) -> None:
        await self._own(self._start(leaders))

    async def _start(self, leaders: int) -> None:
        await self.tables.open()
        parts = self.parts = make_parts(
            self._settings, CloudAccess(self.upstream, self._clients, self._confirm), self.tables, FILTERS
        )
        assert parts.offline is not None
        self.offline = parts.offline
        self.offline.discover(None)
        parts.rules.listen(self._rules_changed)
        parts.sources.on_restore.append(self._restored)
        clock = asyncio.get_running_loop().time
        peers = Peers(self._clients.hub, lambda server: self._session.cut_leader(server.host), clock)
        self.selector = LeaderSelector(
            *(OwnPeer(self._settings.node, self._settings.peer_port), peers, SharedSources(parts.sources)),
            lambda: self.upstream.is_up,
            clock,
        )
        parts.sources.on_new.append(self.selector.attach_reader)
        self.follow(leaders)
        self._serving = PeerServing(
            parts.sources, parts.serving, lambda: True, lambda each: each in FIRST_SCOPE
        )
        tasks = [self._probe(), self._end_delays(), peers.run(), self.selector.run()]
        self._tasks = [asyncio.create_task(each) for each in tasks]

    def _own[T](self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Start a task of this process."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        return asyncio.create_task(work, context=context)

    async def stop(self) -> None:
        """End in order: pending data is written."""
        self.offline.close()
        self.parts.inputs.close()
        self.parts.sources.close()
        self.tables.close()
        await self.kill()

    async def kill(self) -> None:
        """End like by SIGKILL: data that is not on disk is lost."""
        self.is_dead = True
        self.tables.access.disk.close()
        for _ in range(3):
            mine = [task for task in asyncio.all_tasks() if task.get_context().get(OWNER) is self]
            # Sorted, so that the history is reproducible.
            for task in sorted(mine, key=_number):
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)

    # -- the link and the pool ------------------------------------------------------------------------------------

    def follow(self, leaders: int) -> None:
        """Follow this number of leaders of a pool, 0 for no pool."""
        if leaders and not self._leads:
            pool = PoolConfig(LEADERS[:leaders], FIRST_SCOPE, is_shared=True, has_deputies=False)
            members = (*(each.node for each in pool.leaders), self._settings.node)
            self.selector.update(Role.FOLLOWER, pool, members)
        else:
            self.selector.update(Role.LEADER if self._leads else Role.NONE, NO_POOL, ())

    def cut_leaders(self) -> None:
        """Close the streams from leaders."""
        for each in LEADERS:
            self._session.cut_leader(each.address)

    @property
    def _leads(self) -> bool:
        return any(each.node == self._settings.node for each in LEADERS)

    async def lead(self) -> None:
        """Provide the pool's shared resources, with their history."""
        for each in FIRST_SCOPE:
            source = self.parts.sources.get(HUB_IDENTITY, ListWatch(each))
            with contextlib.suppress(StatusError):
                await source.ready(1.0)
                await source.view(PEER_KEY, 1.0)

    async def _confirm(self) -> bool:
        self._look()
        return self.upstream.is_up

    def _look(self) -> None:
        is_there = self._line.link is not Link.DOWN
        if self.health.succeeded() if is_there else self.health.failed("no answer"):
            self.upstream.changed.notify()

    async def _probe(self) -> None:
        while True:
            self._look()
            if self._leads:
                await self.lead()
            await asyncio.sleep(PROBE)

    async def _end_delays(self) -> None:
        """End delays like the hub's assembly."""
        while True:
            await self.upstream.changed.wait()
            if self.upstream.is_up:
                self.parts.sources.cloud_recovered()

    # -- requests ---------------------------------------------------------------------------------------------

    def ask(
        self,
        component: str,
        target: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] = JSON,
        body: bytes = b"",
        peer: str = "",
    ) -> Exchange:
        """Send a request of a component of the node, or of another node's hub (`peer`)."""
        exchange = Exchange()

        async def answer() -> Answer | None:
            try:
                wanted = await self._routed(component, method, target, CIMultiDict(headers), body, peer)
                return await self._answer(exchange, wanted)
            except (StatusError, asyncio.CancelledError):
                raise
            except (OSError, Unreachable) as error:
                return None if exchange.status.done() else Answer(str(error).encode(), status=502)
            except Exception as error:
                self.failures.append(f"failed: {method} {target}: {error!r}")
                raise

        exchange.follow(self._own(exchange.answered(answer())))
        return exchange

    async def _routed(
        self, component: str, method: str, target: str, headers: Mapping[str, str], body: bytes, peer: str
    ) -> ClientRequest:
        """Route like `addons.router.Router`."""
        rules, token = self.parts.rules, headers.get("Authorization", "")
        caller = Caller(CredentialSource.OWN, token) if token else Caller(CredentialSource.HUB)
        info, listener = parse_request(method, target), Listener.PEER if peer else Listener.PLAIN
        is_filterable = may_be_filtered(info, listener, rules.rules)
        if is_filterable:
            await rules.wait_known(self._settings.wait)
        policy, accept = self.offline.cached_relay.offline_policy(caller), headers["Accept"]
        route = decide(info, component, caller, listener, accept, rules.rules, offline_policy=policy)
        issued_under_other_rules = self.parts.sources.filtering.issued_under_other_rules
        if route.kind is RouteKind.RELAY and is_of_others(info, issued_under_other_rules):
            route = corrected(info, caller, accept)
        return ClientRequest(
            *(info, component, caller, route),
            target=target,
            headers=headers,
            body=body,
            peer=peer,
            reads_differences=are_accepted(headers.get("Accept-Encoding", "")),
        )

    async def _answer(self, exchange: Exchange, wanted: ClientRequest) -> Answer | None:
        kind = wanted.route.kind
        if kind is RouteKind.CACHED_RELAY:
            return await self._relay_or_answer(exchange, wanted)
        if kind is not RouteKind.RELAY:
            answerer = self._serving if kind is RouteKind.PEER else self.parts.answerers[kind]
            with contextlib.suppress(RelayToCloud):
                return await answerer.answer(wanted, exchange)
        return await self._relay(exchange, wanted)

    async def _relay_or_answer(self, exchange: Exchange, wanted: ClientRequest) -> Answer | None:
        relay = self.offline.cached_relay
        answers = relay.answers
        goes = relay.goes_to_cloud(wanted.info, wanted.caller)
        while True:
            if goes:
                since, _ = answers.accepted.count, await answers.begin_write(wanted.info)
                asked = OfflineRequest.of(wanted.info, wanted.target, wanted.headers, wanted.body)
                with contextlib.suppress(Unreachable):
                    answer = await self._sent(wanted)
                    await answers.written(asked, answer)
                    answers.keep_response(wanted.caller, asked, answer, since)
                    return Answer(answer.body, status=answer.status)
                answers.lost(asked)
                wanted = replace(wanted, sent=wanted.sent + 1)
            with contextlib.suppress(RelayToCloud):
                return await relay.answer(wanted, exchange)
            goes = True

    async def _relay(self, exchange: Exchange, wanted: ClientRequest) -> Answer | None:
        if not self.upstream.is_up:
            raise unavailable("the cloud cannot be reached")
        if wanted.info.verb != "watch":
            answer = await self._sent(wanted)
            return Answer(answer.body, status=answer.status)
        self._relayed[exchange] = wanted
        try:
            lines = await self._line.watch(wanted.target, is_hubs=False)
            await exchange.begin({})
            async for chunk in lines:
                await exchange.write(chunk)
        finally:
            del self._relayed[exchange]
        return None

    async def _sent(self, wanted: ClientRequest) -> RawResponse:
        client, headers = self._clients.relaying(wanted.caller), wanted.headers.items()
        answer = await client.relay(wanted.info.method, wanted.target, headers=headers, body=wanted.body)
        if self._is_filtered(wanted):
            raise unavailable("the rules have changed meanwhile", retry_after=1)
        return answer

    def _rules_changed(self) -> None:
        self.edits += 1
        for exchange, wanted in list(self._relayed.items()):
            if self._is_filtered(wanted):
                exchange.close()

    def _restored(self, resource: str) -> None:
        for exchange, wanted in list(self._relayed.items()):
            is_left = wanted.route.read is not None and wanted.route.read.type.group_resource == resource
            if is_left or is_of_others(wanted.info, self.parts.sources.filtering.issued_under_other_rules):
                exchange.close()

    def _is_filtered(self, wanted: ClientRequest) -> bool:
        info, type_ = wanted.info, wanted.info.type
        assert type_ is not None
        bindings = self.parts.rules.rules.bindings
        return bool(bindings.chain(wanted.component, type_.group, type_.resource, info.verb))


def _is_settled(reflector: Reflector) -> bool:
    has_proof = not (reflector.verifier.is_broken or reflector.verifier.awaits_last_event)
    return reflector.state in REFUSALS or (reflector.state is State.WATCHING and has_proof)


def _number(task: asyncio.Task[object]) -> tuple[int, str]:
    """Return a sort key of tasks from their generated names."""
    return len(task.get_name()), task.get_name()
