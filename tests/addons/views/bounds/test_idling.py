"""Sources without clients: their traffic is at most the size of a list, and has the lowest priority."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from addons.telemetry import metrics
from addons.views import sources
from addons.views.bounds import idling, quotas
from addons.views.source import Source
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.observed import until, value_of
from tests.cloud.scriptable import ScriptableCloud
from tests.support.objects import obj

CONFIG_MAPS = "/api/v1/namespaces/a/configmaps"
LARGE = 40_000
WATCHES = 10


def config_map(number: int, size: int = LARGE) -> dict[str, Any]:
    return obj("ConfigMap", f"m{number}", "a", data={"key": "x" * size})


def of_config_maps(parts: HubWorld) -> list[Source]:
    return [each for each in parts.sources if each.list_watch.label_selector]


async def closed_watches(parts: HubWorld, count: int = WATCHES) -> list[Source]:
    """Open sources of this many selectors, whose clients have disconnected."""
    for number in range(count):
        target = f"{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector=!x{number}"
        async with parts.watch(target):
            pass
    made = of_config_maps(parts)
    assert len(made) == count
    return made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idling, "CHECK_INTERVAL", 0.01)
    monkeypatch.setattr(idling, "QUIET_TIME", 0.05)


async def test_unread_events_are_bounded_by_the_size_of_a_list(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """50 closed watches with different selectors once received 45 objects of 0.9 MB fifty times."""
    bound = metrics.BOUNDS_REACHED.labels("events that nobody reads")
    before = value_of(bound)
    made = await closed_watches(parts)
    for number in range(4):
        cloud.store.create(config_map(number))
    await until(lambda: not of_config_maps(parts))
    assert all(each.is_closed for each in made)
    assert value_of(bound) == before + WATCHES
    assert len(await parts.names(f"{CONFIG_MAPS}?resourceVersion=0&labelSelector=!x0")) == 4


async def test_a_source_with_a_large_list_continues_to_read_events(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    for number in range(4):
        cloud.store.create(config_map(number))
    (made,) = await closed_watches(parts, 1)
    for number in range(4, 7):
        cloud.store.create(config_map(number))
    await until(lambda: len(made.store) == 7)
    assert not made.is_closed
    cloud.store.create(config_map(7))
    await until(lambda: made.is_closed)


async def test_a_source_with_a_client_continues_to_read_events(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    target = f"{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector=!x"
    async with parts.watch(target) as watch:
        for number in range(4):
            cloud.store.create(config_map(number))
            assert await watch.event() == ("ADDED", f"m{number}")
        (made,) = of_config_maps(parts)
    async with parts.watch(target) as watch:
        assert [await watch.event() for _ in range(4)] == [("ADDED", f"m{number}") for number in range(4)]
    assert not made.is_closed


async def test_events_awaited_by_a_client_are_applied_first(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """A source without clients continues once nothing is relayed, or once a client connects."""
    now = 1000.0
    parts.sources.idling._clock = parts.sources.idling.relayed_at = lambda: now
    (made,) = await closed_watches(parts, 1)
    cloud.store.create(config_map(0, 10))
    await until(lambda: len(made.store) == 1)
    cloud.store.create(config_map(1, 10))
    watched = made.wanted
    await until(lambda: bool(watched._waiters))
    assert len(made.store) == 1
    async with parts.watch(f"{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector=!x0") as watch:
        assert {await watch.event() for _ in range(2)} == {("ADDED", "m0"), ("ADDED", "m1")}


async def test_events_count_in_the_quota_and_close_the_source_that_grew_most(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source that grew most is closed; its client retries and is relayed."""
    monkeypatch.setattr(sources, "TOTAL_CHECK_BYTES", 1)
    async with AsyncExitStack() as stack:
        cloud.store.create(config_map(0))
        for selector in ("!x", "grows"):
            target = f"{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector={selector}"
            await stack.enter_async_context(parts.watch(target))
        steady, growing = of_config_maps(parts)
        monkeypatch.setattr(quotas, "MAX_HUB_BYTES", 2 * LARGE)
        grown = config_map(1)
        for number in (1, 2):
            grown = config_map(number, LARGE // 2)
            grown["metadata"]["labels"] = {"x": "", "grows": ""}
            cloud.store.create(grown)
        await until(lambda: growing.is_closed)
        assert not steady.is_closed
