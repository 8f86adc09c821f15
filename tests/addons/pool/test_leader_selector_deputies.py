"""Followers read from a deputy when their leader fails, and from a relay outside the pool."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from addons.pool.pool_config import NO_POOL, PoolConfig, Role
from addons.pool.spread import rank
from addons.requests.headers import LENDS_HEADER, PEER_HEADER
from tests.addons.pool.test_leader_selector import MEMBERS, POOL, SERVICES, A, Scene
from tests.support.background import beside

FIRST, SECOND, SELF = "n3", "n2", "n1"
"""Members in the order of their cloud slots."""
NAMED = f"{FIRST}/10.0.0.13,{SECOND}/10.0.0.12"


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    made.probes.deputies = NAMED
    async with beside(made.selector.run()), beside(made.peers.run()):
        yield made


def names(scene: Scene) -> list[str]:
    return [each["node"] for each in scene.selector.describe()]


async def learn(scene: Scene) -> None:
    """Read from a leader until a probe has returned the deputies."""
    await scene.server()
    await scene.until(lambda: bool(scene.selector._deputies()))


def test_deputies_are_in_the_order_of_their_rank() -> None:
    assert sorted([SELF, SECOND, FIRST], key=rank) == [FIRST, SECOND, SELF]


async def test_deputies_come_after_the_leaders_and_before_the_cloud(scene: Scene) -> None:
    scene.update(can_serve=True)
    await learn(scene)
    assert names(scene) == [*names(scene)[:2], FIRST, SECOND]
    assert not scene.selector.is_deputy
    assert f"https://10.0.0.13:{10269}" in scene.peers.healths
    scene.fail("a")
    scene.fail("b")
    assert await scene.server() == FIRST
    scene.fail(FIRST)
    assert await scene.server() == SECOND
    scene.probes.ages["a"] = 0.0
    await scene.until(lambda: bool(scene.state("a")["usable"]))
    assert await scene.server() == "a"


async def test_a_follower_announces_its_peer_port_once_open(scene: Scene) -> None:
    scene.update()
    await learn(scene)
    assert {PEER_HEADER} not in [set(each.headers) for each in scene.probes.asked]
    scene.probes.asked.clear()
    scene.update(can_serve=True)
    await scene.until(lambda: bool(scene.probes.asked))
    assert scene.probes.asked[0].headers == {PEER_HEADER: "::"}


@pytest.mark.parametrize("node", [FIRST, SECOND])
async def test_a_deputy_reads_from_earlier_deputies_and_the_first_from_the_cloud(
    scene: Scene, node: str
) -> None:
    scene.selector._node = node
    scene.update(can_serve=True)
    await learn(scene)
    assert scene.selector.is_deputy
    scene.fail("a")
    scene.fail("b")
    expected = FIRST if node == SECOND else "cloud"
    choice = scene.selector._choose(scene.reader, resumes=True)
    assert not choice.wait
    assert await scene.server() == expected


async def test_a_hub_that_cannot_serve_reads_from_any_deputy_and_is_no_deputy(scene: Scene) -> None:
    scene.selector._node = FIRST
    scene.update()
    await learn(scene)
    assert names(scene)[2:] == [SECOND]
    assert not scene.selector.is_deputy


async def test_deputies_named_by_a_removed_leader_are_dropped(scene: Scene) -> None:
    scene.update(config=PoolConfig((A,), (SERVICES,), is_shared=True), can_serve=True)
    await learn(scene)
    scene.fail("a")
    await scene.server()
    scene.probes.deputies = "n4/10.0.0.14"
    scene.probes.asked.clear()
    await scene.until(lambda: any("10.0.0.13" in each.server for each in scene.probes.asked))
    assert names(scene) == ["a", FIRST, SECOND]
    scene.update(Role.NONE, NO_POOL)
    assert names(scene) == []


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.2"])
async def test_a_deputy_with_the_address_of_a_leader_is_ignored(scene: Scene, address: str) -> None:
    scene.probes.deputies = f"{FIRST}/{address},{SECOND}/10.0.0.12"
    scene.update(can_serve=True)
    await learn(scene)
    assert names(scene)[2:] == [SECOND]
    assert {each.server.node for each in scene.peers.healths.values()} == {"a", "b", SECOND}


async def test_a_pool_without_deputies_ignores_those_that_leaders_name(scene: Scene) -> None:
    scene.update(can_serve=True)
    await learn(scene)
    config = POOL._replace(has_deputies=False)
    scene.selector.update(Role.FOLLOWER, config, MEMBERS, can_serve=True)
    assert names(scene) == names(scene)[:2]
    scene.selector._node = FIRST
    scene.selector.update(Role.FOLLOWER, config, MEMBERS, can_serve=True)
    assert not scene.selector.is_deputy


async def test_a_former_member_or_a_leader_is_not_used_as_a_deputy(scene: Scene) -> None:
    scene.update(can_serve=True)
    await learn(scene)
    left = [each for each in MEMBERS if each != FIRST]
    scene.selector.update(Role.FOLLOWER, POOL, left, can_serve=True)
    assert names(scene)[2:] == [SECOND]
    leads = PoolConfig((*POOL.leaders, next(iter(scene.selector._deputies()))), POOL.scope, is_shared=True)
    scene.selector.update(Role.FOLLOWER, leads, MEMBERS, can_serve=True)
    assert names(scene)[3:] == [SECOND]


async def test_a_probe_announces_lending_and_requests_lenders_offline(scene: Scene) -> None:
    scene.update()
    assert not scene.probes.asked, "nothing is read from a leader"
    scene.lends = True
    await scene.until(lambda: bool(scene.probes.asked))
    assert LENDS_HEADER in scene.probes.asked[-1].headers
    scene.lends = False
    scene.cloud_is_up = False
    asked = len(scene.probes.asked)
    await scene.until(lambda: len(scene.probes.asked) > asked + 2)
    assert LENDS_HEADER not in scene.probes.asked[-1].headers
    assert {each.node for each in scene.selector.lenders} == {FIRST, SECOND}


RELAY = "relay 10.0.0.9:10269"
CONFIG = PoolConfig((A,), (SERVICES,), is_shared=True, relay="https://10.0.0.9:10269")


@pytest.fixture
async def relayed() -> Scene:
    return Scene()


@pytest.mark.parametrize("role", [Role.NONE, Role.LEADER])
async def test_a_hub_without_a_leader_reads_from_the_relay(relayed: Scene, role: Role) -> None:
    relayed.update(role, CONFIG)
    assert await relayed.server() == RELAY
    assert relayed.selector.has_leader


async def test_a_follower_falls_back_from_leader_to_relay_to_cloud(relayed: Scene) -> None:
    relayed.update(Role.FOLLOWER, CONFIG)
    assert await relayed.server() == "a"
    relayed.fail("a")
    assert await relayed.server() == RELAY
    relayed.fail(RELAY)
    relayed.now += 10.0
    relayed.selector.balance()
    assert await relayed.server() == "cloud"


async def test_a_leader_without_its_relay_reads_from_the_cloud_at_once(relayed: Scene) -> None:
    relayed.update(Role.LEADER, CONFIG)
    assert await relayed.server() == RELAY
    relayed.fail(RELAY)
    assert await relayed.server() == "cloud"


async def test_a_relay_serves_resources_outside_the_pools_scope(relayed: Scene) -> None:
    """The follower reads resources that the pool does not share from the relay instead of the leader."""
    relayed.update(Role.FOLLOWER, PoolConfig((A,), (), is_shared=True, relay=CONFIG.relay))
    assert await relayed.server() == RELAY


async def test_a_node_without_a_certificate_reads_from_no_relay(relayed: Scene) -> None:
    relayed.selector.update(Role.NONE, CONFIG, (), can_follow=False)
    assert await relayed.server() == "cloud"


async def test_a_configmap_without_a_url_names_no_relay(
    relayed: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    relayed.update(Role.NONE, PoolConfig(relay="http://10.0.0.9"))
    assert await relayed.server() == "cloud"
    assert "is not of the form" in caplog.text
