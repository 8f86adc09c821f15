"""The server from which a follower reads each shared source, as leaders fail, lose the cloud and recover."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from addons.link.servers import Server
from addons.pool.leader_selector import LeaderSelector
from addons.pool.peer_reader import PeerReader, SharedSources
from addons.pool.peers.own_peer import OwnPeer
from addons.pool.peers.peer_probes import Peers
from addons.pool.pool_config import NO_POOL, PoolConfig, Role
from addons.pool.spread import SPREAD
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, SHARES_HEADER
from addons.requests.route_decision import PEER_PROBE_PATH
from addons.telemetry import metrics
from addons.views.source import Source
from kube.errors import expired
from kube.http.client import RawResponse, Unreachable
from kube.peers import LeaderHub
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.support.background import beside

SERVICES = ResourceType("", "v1", "services")
A, B = LeaderHub("a", "10.0.0.1"), LeaderHub("b", "10.0.0.2")
POOL = PoolConfig((A, B), (SERVICES,), is_shared=True)
HOSTS = {"10.0.0.1": "a", "10.0.0.2": "b", "10.0.0.12": "n2", "10.0.0.13": "n3"}
MEMBERS = ["a", "b", "n1", "n2", "n3", "n4"]
PATIENCE = 20.0
"""Seconds that a test waits for an event that takes one second."""

pytestmark = pytest.mark.looptime


class OneReflector:
    """A reflector that records the request to switch its server."""

    def __init__(self) -> None:
        self.upstream: PeerReader | None = None
        self.switched = asyncio.Event()
        self.reminded = 0

    async def current_version(self) -> int:
        """Return the cloud's version, which equals the source's: zero."""
        return 0

    def switch(self) -> None:
        self.switched.set()

    def remind(self) -> None:
        self.reminded += 1


class OneSource:
    """The attributes of a source that the selector reads."""

    def __init__(self, client: ScriptedClient, list_watch: ListWatch, user: str = "") -> None:
        self.client, self.list_watch, self.user = client, list_watch, user
        self.store = Store()
        self.reflector = OneReflector()


@dataclass
class Answers:
    """Each leader's response to a probe, by its node; a missing leader does not respond."""

    ages: dict[str, float | None]
    asked: list[Asked] = field(default_factory=list)
    deputies: str = ""
    """The deputies that each leader names."""
    shares: str = ""
    """The additional resources that each leader announces."""

    def __call__(self, asked: Asked) -> Any:
        assert asked.path == PEER_PROBE_PATH
        self.asked.append(asked)
        node = HOSTS.get(asked.server.removeprefix("https://").partition(":")[0], "")
        age = self.ages.get(node, 0.0)
        if age is None:
            raise Unreachable("no answer")
        headers = {AGE_HEADER: f"{age:.0f}", DEPUTIES_HEADER: self.deputies, SHARES_HEADER: self.shares}
        return RawResponse(404, headers, b"")


class Scene:
    """A node with one shared source."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cloud_is_up = True
        self.cut: list[Server] = []
        self.further: list[ResourceType] = []
        self.probes = Answers({"a": 0.0, "b": 0.0})
        client = ScriptedClient(self.probes)
        self.source = OneSource(client, ListWatch(SERVICES))
        self.sources = [self.source]
        self.peers = Peers(client, self._note_cut, lambda: self.now)
        self.lends = False
        self.selector = LeaderSelector(
            OwnPeer("n1", 10269, lends=lambda: self.lends),
            self.peers,
            SharedSources(cast(list[Source], self.sources), lambda: self.further),
            lambda: self.cloud_is_up,
            lambda: self.now,
        )
        found = self.selector.reader_of(cast(Source, self.source))
        assert found is not None
        self.reader = self.source.reflector.upstream = found

    def _note_cut(self, server: Server) -> int:
        self.cut.append(server)
        return 1

    def update(
        self, role: Role = Role.FOLLOWER, config: PoolConfig = POOL, *, can_serve: bool = False
    ) -> None:
        self.selector.update(role, config, MEMBERS, can_serve=can_serve)

    async def server(self) -> str:
        """Return the server from which the source would read now."""
        found = await self.selector.server(self.reader, resumes=True)
        self.reader.peer = found
        name = found.node if found is not None else "cloud"
        self.selector.reads(self.reader, name)
        return name

    def state(self, node: str) -> dict[str, Any]:
        return next(each for each in self.selector.describe() if each["node"] == node)

    async def until(self, check: Callable[[], bool]) -> None:
        """Poll until the condition holds, while virtual time passes."""
        async with asyncio.timeout(PATIENCE):
            while not check():
                self.now += 1.0
                await asyncio.sleep(0.02)

    def fail(self, node: str) -> None:
        """Stop the leader from serving and from answering probes."""
        self.probes.ages[node] = None
        for each in self.selector._order:
            if each.node == node:
                self.selector.leave(each, "refused")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with _running(Scene()) as made:
        yield made


@asynccontextmanager
async def _running(made: Scene) -> AsyncIterator[Scene]:
    async with beside(made.selector.run()), beside(made.peers.run()):
        yield made


async def test_a_wait_shorter_than_the_clocks_resolution_ends() -> None:
    """A clock with microsecond resolution once made followers wait for ever."""
    selector, loop = Scene().selector, asyncio.get_running_loop()
    moment, waits = loop.time() + 1.0 + 5e-10, 0
    while (left := moment - loop.time()) > 0:
        await selector._changed_within(left)
        waits += 1
        assert waits < 10


def test_only_the_hubs_unselected_shared_sources_read_from_leaders() -> None:
    pods = ResourceType("", "v1", "pods")

    async def readers() -> list[bool]:
        selector = Scene().selector
        client = ScriptedClient(lambda _: {})
        list_watches = [
            (ListWatch(SERVICES), ""),
            (ListWatch(SERVICES), "somebody"),
            (ListWatch(SERVICES, namespace="n"), ""),
            (ListWatch(SERVICES, metadata_only=True), ""),
            (ListWatch(pods), ""),
        ]
        made = [OneSource(client, each, user) for each, user in list_watches]
        return [selector.reader_of(cast(Source, each)) is not None for each in made]

    assert asyncio.run(readers()) == [True, False, False, False, False]


async def test_resources_announced_by_a_leader_are_read_from_it(scene: Scene) -> None:
    """A YurtHub or an older hub refuses resources added by the rules, and announces none."""
    things = ResourceType("example.com", "v1", "things")
    source = OneSource(scene.source.client, ListWatch(things))
    scene.sources.append(source)
    scene.further.append(things)
    scene.selector.share()
    reader = source.reflector.upstream
    assert reader is not None
    assert source.reflector.switched.is_set()
    scene.update(config=POOL._replace(scope=(SERVICES, things)))
    assert scene.selector._choose(reader, resumes=True).peer is None
    scene.probes.shares = "things.example.com"
    async with asyncio.timeout(PATIENCE), _running(scene):
        found = await scene.selector.server(reader, resumes=True)
    assert found is not None
    assert found.node in (A.node, B.node)


@pytest.mark.parametrize(
    ("role", "config"),
    [(Role.NONE, PoolConfig()), (Role.LEADER, POOL), (Role.FOLLOWER, PoolConfig((A, B), (), is_shared=True))],
    ids=["no pool", "a leader", "not shared"],
)
async def test_a_node_without_a_leader_reads_the_cloud_at_once(
    scene: Scene, role: Role, config: PoolConfig
) -> None:
    scene.update(role, config)
    assert await scene.server() == "cloud"
    assert scene.selector.has_leader is (role is Role.FOLLOWER)


async def test_a_shared_source_waits_until_its_leader_is_known(scene: Scene) -> None:
    asked = asyncio.create_task(scene.server())
    await asyncio.sleep(0)
    assert not asked.done()
    scene.update()
    assert await asked in ("a", "b")
    assert scene.selector.has_leader
    labels = {"resource": "services", "server": scene.reader.server}
    assert metrics.REGISTRY.get_sample_value("edgehub_source_server", labels) == 1


async def test_a_source_leaves_a_failed_leader_whose_connections_are_cut(scene: Scene) -> None:
    scene.update()
    first = await scene.server()
    scene.fail(first)
    assert [each.node for each in scene.cut] == [first]
    assert scene.source.reflector.switched.is_set()
    assert await scene.server() == ("b" if first == "a" else "a")


async def test_without_leaders_the_node_reads_the_cloud_after_its_delay(scene: Scene) -> None:
    # This follower has the last of four cloud slots, 3 s after the first.
    last = "n4"

    async def _lose_the_leaders(scene: Scene) -> None:
        """Let the follower read from a leader, then fail both leaders."""
        scene.selector._node = last
        scene.update()
        await scene.server()
        scene.fail("a")
        scene.fail("b")

    await _lose_the_leaders(scene)
    assert scene.selector._choose(scene.reader, resumes=True).wait == 3.0
    scene.now += 2.9
    assert scene.selector._choose(scene.reader, resumes=True).wait > 0.0
    scene.now += 0.2
    scene.selector.balance()
    assert await scene.server() == "cloud"


async def test_each_switch_of_a_source_is_recorded_with_its_reason(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.update()

    async def moved(server: str) -> str:
        assert await scene.server() == server
        [found] = scene.selector.describe_sources()
        assert (found["resource"], found["server"]) == ("services", server)
        assert time.strptime(found["since"], "%Y-%m-%dT%H:%M:%SZ")
        assert f"services: read from {server}: {found['why']}" in caplog.text
        return str(found["why"])

    first, second = (each["node"] for each in scene.selector.describe())
    assert await moved(first) == "it is the first choice"
    scene.fail(first)
    assert await moved(second) == f"{first} failed: refused"
    scene.reader._left(next(each for each in scene.selector._order if each.node == second), expired("1"))
    scene.selector.balance()
    scene.now += SPREAD
    scene.selector.balance()
    assert await moved("cloud") == f"the history of {second} is too short"
    scene.reader._too_short.clear()
    assert await moved(second) == "it serves, so the cloud need not"
    scene.update(Role.NONE, NO_POOL)
    scene.now += SPREAD
    assert await moved("cloud") == f"{second} is no longer named"


async def test_retries_of_an_unreachable_leader_back_off(scene: Scene) -> None:
    scene.update()
    first = await scene.server()
    scene.fail(first)
    state = next(each for each in scene.selector._order if each.node == first)
    soon = state.return_within
    await scene.until(lambda: state.return_within >= 8 * soon)
    assert scene.state(first)["failure"] == "no answer to a probe: no answer", "not why it was left"


async def test_a_leader_without_a_cloud_is_the_last_choice(scene: Scene) -> None:
    scene.update()
    first = await scene.server()
    scene.probes.ages[first] = 5.0
    await scene.until(scene.source.reflector.switched.is_set)
    other = await scene.server()
    assert other not in (first, "cloud")
    scene.probes.ages[other] = 3.0
    await scene.until(lambda: scene.state(other)["ageSeconds"] > 0)
    scene.cloud_is_up = False
    assert await scene.server() == other
    scene.now += scene.selector._slots.slot.wait(scene.now) + 1.0
    scene.cloud_is_up = True
    assert await scene.server() == other, "until the turn of this follower"
    scene.now += 11.0
    scene.selector.balance()
    assert await scene.server() == "cloud"
    scene.probes.ages[first] = 0.0
    await scene.until(lambda: not scene.state(first)["ageSeconds"])
    assert await scene.server() == first


async def test_a_list_continues_at_a_leader_whose_history_is_too_short_for_a_watch(scene: Scene) -> None:
    scene.update()
    await scene.server()
    [first, _] = scene.selector._order
    scene.reader._too_short[first] = scene.source.store.version
    for resumes in (False, True):
        scene.reader.resumes = resumes
        scene.selector.balance()
        assert scene.source.reflector.switched.is_set() is resumes


async def test_a_source_leaves_a_leader_that_is_no_longer_named(scene: Scene) -> None:
    scene.update()
    first = await scene.server()
    other = B if first == "a" else A
    scene.update(config=PoolConfig((other,), (SERVICES,), is_shared=True))
    assert scene.source.reflector.switched.is_set()
    assert await scene.server() == other.node
    assert list(scene.peers.healths) == [f"https://{other.address}:10269"]


@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER])
async def test_a_node_that_joins_a_pool_reads_the_clouds_current_version(scene: Scene, role: Role) -> None:
    assert scene.reader.is_shared, "nobody knows yet"
    scene.update(Role.NONE, NO_POOL)
    assert (scene.reader.is_shared, scene.source.reflector.reminded) == (False, 0)
    scene.update(role)
    scene.update(role)
    assert (scene.reader.is_shared, scene.source.reflector.reminded) == (True, 1)
