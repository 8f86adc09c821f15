"""The leader from which a follower reads discovery, and a leader that lost the cloud together with the follower."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from addons.pool.leader_selector import NEWS_INTERVAL, NEWS_WAIT
from addons.pool.pool_config import PoolConfig, Role
from tests.addons.pool.test_leader_selector import PATIENCE, SERVICES, A, Scene
from tests.addons.support.observed import until
from tests.support.background import beside

pytestmark = pytest.mark.looptime


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    async with beside(made.selector.run()), beside(made.peers.run()):
        yield made


async def test_discovery_is_read_from_a_leader_with_a_cloud_once_the_pool_is_known(scene: Scene) -> None:
    asking = asyncio.create_task(scene.selector.leader())
    await asyncio.sleep(1)
    assert not asking.done()
    scene.update()
    client = await asking
    assert client is not None
    first = scene.selector._order[0]
    assert client._base_url == str(first.server)
    for peer in scene.selector._order:
        scene.fail(peer.node)
    assert await scene.selector.leader() is None


@pytest.mark.parametrize(("age_then", "server"), [(0.0, "a"), (9.0, "cloud")])
async def test_a_leader_that_lost_the_cloud_too_has_time_to_recover(
    scene: Scene, age_then: float, server: str
) -> None:
    """The last probe was up to 3.5 s old, so the only follower once read both resources from the cloud, and returned at
    once."""

    async def until_asked(before: int) -> None:
        """Return when another probe has its response, while the selector's clock stands still."""
        await until(lambda: len(scene.probes.asked) > before, PATIENCE)
        await asyncio.sleep(0.02)

    scene.cloud_is_up, scene.probes.ages = False, {"a": 5.0}
    pool = PoolConfig((A,), (SERVICES,), is_shared=True)
    scene.selector.update(Role.FOLLOWER, pool, ["a", "n1"])
    await scene.until(lambda: scene.state("a")["ageSeconds"] == 5.0)
    assert await scene.server() == "a"
    scene.cloud_is_up, scene.probes.ages["a"] = True, age_then
    scene.selector.balance()
    assert await scene.server() == "a"
    asked = len(scene.probes.asked)
    scene.now += NEWS_INTERVAL
    await until_asked(asked)
    scene.now += NEWS_WAIT
    assert await scene.server() == server


async def test_discovery_without_a_pool_waits_only_for_the_pool_timeout(scene: Scene) -> None:
    began = asyncio.get_running_loop().time()
    asking = asyncio.create_task(scene.selector.leader())
    await scene.until(asking.done)
    assert await asking is None
    assert asyncio.get_running_loop().time() - began < PATIENCE
