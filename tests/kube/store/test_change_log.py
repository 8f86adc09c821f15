"""The change log of a projection: order, positions, and dropped changes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store.change_log import Log, Logs, ProjectedChange
from kube.store.store import Item, Store

EVERYTHING = 10**9


def change(name: str, version: int, *, is_local: bool = False, size: int = 1) -> ProjectedChange:
    item = Item(Store(), ("a", name), version, {}, bytes(size))
    return ProjectedChange(version, item.key, None, item, None, is_local)


def names(log: Log, position: int) -> list[str]:
    return [each.key[1] for _, each in log.read(position, log.end)]


async def filled(*versions: int, bound: Logs | None = None, dropped: list[int] | None = None) -> Log:
    log = Log(10, lambda position, _: dropped.append(position) if dropped is not None else None, bound=bound)
    for version in versions:
        log.append(change(f"at{version}", version), version)
    return log


async def test_a_change_by_an_input_is_replayed_to_a_client_of_its_version() -> None:
    log = await filled(12)
    log.append(change("input", 7, is_local=True), 20)
    assert names(log, log.position_after(20)) == ["input"]
    assert names(log, log.position_after(12)) == ["input"]
    log.append(change("next", 21), 21)
    assert names(log, log.position_after(20)) == ["input", "next"]
    assert names(log, log.position_after(21)) == []


async def test_several_views_add_a_change_once() -> None:
    log, shared = await filled(11), change("shared", 12)
    for _ in range(2):
        log.append(shared, 12)
    assert names(log, 0) == ["at11", "shared"]


@pytest.mark.parametrize(("max_changes", "max_bytes"), [(2, EVERYTHING), (EVERYTHING, 70)])
async def test_trimming_drops_the_oldest_and_notifies(max_changes: int, max_bytes: int) -> None:
    dropped: list[int] = []
    log = await filled(11, 12, 13, dropped=dropped)
    log.trim(max_changes, max_bytes)
    assert dropped == [0]
    assert names(log, 0) == ["at12", "at13"]
    assert names(log, log.position_after(12)) == ["at13"]


async def test_the_largest_logs_under_a_shared_bound_lose_their_oldest_changes(reached: list[str]) -> None:
    size = change("x", 1).size
    bound = Logs(10 * size)
    logs = [await filled(*range(11, 11 + count), bound=bound) for count in (1, 4, 8)]
    bound.trim()
    assert ([len(log) for log in logs], bound.bytes) == ([1, 4, 5], 10 * size)
    assert reached == ["histories of views"]
    logs[0].append(change("large", 20, size=100 * size), 20)
    bound.trim()
    assert [len(log) for log in logs] == [1, 1, 1], "each keeps its last change"
    logs[0].close()
    logs[1].restart(9)
    assert (bound.bytes, list(bound.members)) == (size, logs[1:])
    assert names(logs[0], 0) == ["large"], "for the last watchers"


async def test_the_last_change_is_retained_whatever_its_size() -> None:
    log = await filled(11)
    log.trim(EVERYTHING, 1)
    assert names(log, 0) == ["at11"]


async def test_a_restart_empties_the_log() -> None:
    log = await filled(11)
    log.restart(3)
    assert (log.start, log.end, log.bytes) == (1, 1, 0)
    log.append(change("b", 4), 4)
    assert names(log, log.position_after(3)) == ["b"]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=40), st.integers(0, 60))
def test_positions_split_a_log_by_version_and_sequence(steps: list[tuple[bool, int]], seen: int) -> None:
    async def run() -> None:
        log, version, expected = Log(0), 0, []
        for number, (from_cloud, ahead) in enumerate(steps):
            if from_cloud:
                version += ahead
            log.append(change(str(number), version, is_local=not from_cloud), version)
            if version > seen or (version == seen and not from_cloud):
                expected.append(str(number))
        assert names(log, log.position_after(seen)) == expected
        order = [each.at for _, each in log.read(log.start, log.end)]
        assert order == sorted(set(order))
        log.close()

    asyncio.run(run())
