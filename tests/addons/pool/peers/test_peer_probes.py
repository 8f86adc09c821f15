"""Each other hub has one health state and one probe task, whichever parts of this hub use it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from addons.link.health import Condition
from addons.link.servers import Server
from addons.pool.peers.peer import PROBE_INTERVAL, PROBE_TIMEOUT, PeerAnswer, PeerHub, PeerRole
from addons.pool.peers.peer_probes import TICK, Peers, ProbeRequest
from addons.requests.headers import AGE_HEADER
from kube.http.client import RawResponse, Unreachable
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.support.background import beside

HUB, OTHER = (Server("https", "10.0.0.2", 10269, node) for node in ("n2", "n3"))

pytestmark = pytest.mark.looptime


class User:
    """A part of the hub that requests probes at an interval, and records the notifications."""

    def __init__(self, wanted: ProbeRequest | None) -> None:
        self.wanted = wanted
        self.heard: list[str] = []

    def wants(self, _peer: PeerHub) -> ProbeRequest | None:
        return self.wanted

    def answered(self, peer: PeerHub, before: PeerAnswer) -> None:
        self.heard.append(f"age {before.age:g}, now {peer.age:g}")

    def failed(self, peer: PeerHub) -> None:
        self.heard.append(peer.failure)


class Scene:
    """Two users of one peer, and the peer's response; an exception stands for no response."""

    def __init__(self) -> None:
        self.says: RawResponse | Exception | None = RawResponse(404, {}, b"")
        self.client = ScriptedClient(self._answer)
        self.cuts: list[Server] = []
        self.peers = Peers(self.client, self._cut, asyncio.get_running_loop().time)
        self.reader, self.listener = User(ProbeRequest(headers=(("x-own", "1"),))), User(ProbeRequest())
        self.peer = self.peers.use(self.reader, HUB, PeerRole.LEADER)
        self.peers.use(self.listener, HUB)

    async def spend(self, seconds: float) -> None:
        """Probe for this many seconds on the test's virtual clock, which differs from the fixture's."""
        async with beside(self.peers.run()):
            await asyncio.sleep(seconds)

    def _answer(self, _asked: Asked) -> Any:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def _cut(self, server: Server) -> int:
        self.cuts.append(server)
        return 1


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_leader_that_reports_on_pods_too_is_probed_once_and_has_one_health(scene: Scene) -> None:
    await scene.spend(3 * PROBE_INTERVAL + 4 * TICK)
    assert len(scene.client.asked) == 4
    assert {header for each in scene.client.asked for header in each.headers} == {"x-own"}
    assert scene.peers.healths == {str(HUB): scene.peer.health}
    assert scene.reader.heard == scene.listener.heard


async def test_a_peer_without_users_is_not_probed(scene: Scene) -> None:
    scene.reader.wanted = scene.listener.wanted = None
    await scene.spend(10 * PROBE_INTERVAL)
    assert not scene.client.asked


async def test_the_shortest_interval_of_all_users_is_the_probe_interval(scene: Scene) -> None:
    scene.listener.wanted = ProbeRequest(1.0)
    await scene.spend(10.0)
    assert 8 <= len(scene.client.asked) <= 10


async def test_a_failed_peer_is_cut_once_and_all_users_are_notified(scene: Scene) -> None:
    scene.peers.failed(scene.peer, "refused")
    scene.peers.failed(scene.peer, "too busy")
    assert scene.cuts == [HUB]
    assert scene.reader.heard == scene.listener.heard == ["refused"]


async def test_connections_opened_while_a_peer_is_silent_are_cut_too(scene: Scene) -> None:
    scene.says = Unreachable("no answer")
    await scene.spend(2 * PROBE_INTERVAL + 2 * TICK)
    assert scene.cuts == [HUB] * 3
    assert scene.peer.health.condition is Condition.DOWN


async def test_one_response_brings_a_peer_up_and_resets_its_silence(scene: Scene) -> None:
    scene.peers.failed(scene.peer, "refused")
    await scene.spend(PROBE_INTERVAL)
    assert scene.peer.health.condition is Condition.UP
    assert scene.peer.health.silence == PROBE_TIMEOUT


async def test_users_are_notified_with_a_peers_former_and_new_response(scene: Scene) -> None:
    await scene.spend(2 * TICK)
    scene.says = RawResponse(404, {AGE_HEADER: "7"}, b"")
    await scene.spend(PROBE_INTERVAL)
    assert scene.reader.heard == ["age 0, now 0", "age 0, now 7"]


async def test_a_peer_is_probed_until_its_last_user_is_removed(scene: Scene) -> None:
    scene.peers.leave(scene.reader, HUB)
    assert scene.peer.role is PeerRole.NEIGHBOUR
    await scene.spend(2 * TICK)
    assert scene.client.asked
    scene.peers.leave(scene.listener, HUB)
    assert not scene.peers.healths
    scene.client.asked.clear()
    await scene.spend(10 * PROBE_INTERVAL)
    assert not scene.client.asked
    assert scene.peers.use(scene.reader, HUB) is not scene.peer


async def test_an_address_of_a_leader_or_deputy_is_not_used_for_a_neighbour(scene: Scene) -> None:
    same = Server("https", HUB.host, HUB.port, "n9")
    scene.peers.use(scene.listener, same)
    assert scene.peers.healths[str(same)].server == HUB
    leads = scene.peers.use(scene.reader, OTHER, PeerRole.DEPUTY)
    assert (leads.name, scene.peer.name) == ("deputy n3", "leader n2")
