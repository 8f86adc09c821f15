"""Relays stand between leaders and the cloud; hubs without leaders read from them, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from addons.pool.pool_config import PoolConfig, Role
from tests.addons.pool.test_following import SERVICES, A, Scene

RELAY = "relay 10.0.0.9:10269"
CONFIG = PoolConfig((A,), (SERVICES,), is_shared=True, relay="https://10.0.0.9:10269")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.following.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("role", [Role.NONE, Role.LEADER])
async def test_a_hub_without_a_leader_reads_from_the_relay(scene: Scene, role: Role) -> None:
    scene.update(role, CONFIG)
    assert await scene.server() == RELAY
    assert scene.following.has_leader


async def test_a_follower_goes_from_its_leader_to_the_relay_and_then_to_the_cloud(scene: Scene) -> None:
    scene.update(Role.FOLLOWER, CONFIG)
    assert await scene.server() == "a"
    scene.fail("a")
    assert await scene.server() == RELAY
    scene.fail(RELAY)
    scene.now += 10.0
    scene.following.balance()
    assert await scene.server() == "cloud"


async def test_a_leader_whose_relay_is_gone_reads_from_the_cloud_at_once(scene: Scene) -> None:
    scene.update(Role.LEADER, CONFIG)
    assert await scene.server() == RELAY
    scene.fail(RELAY)
    assert await scene.server() == "cloud"


async def test_the_pools_scope_does_not_bind_a_relay(scene: Scene) -> None:
    """The follower reads resources that the pool does not share from the relay, not from the leader."""
    scene.update(Role.FOLLOWER, PoolConfig((A,), (), is_shared=True, relay=CONFIG.relay))
    assert await scene.server() == RELAY


async def test_a_node_without_a_certificate_asks_no_relay(scene: Scene) -> None:
    scene.following.update(Role.NONE, CONFIG, (), can_follow=False)
    assert await scene.server() == "cloud"


async def test_a_configmap_that_names_no_url_names_no_relay(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.update(Role.NONE, PoolConfig(relay="http://10.0.0.9"))
    assert await scene.server() == "cloud"
    assert "is not of the form" in caplog.text
