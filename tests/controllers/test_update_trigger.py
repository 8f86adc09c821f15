"""The trigger controllers against an oracle: after each random change exactly the right slices were touched."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from controllers.backends import triggered_at
from controllers.update_trigger import is_met, trigger_value
from tests.cloud.rest import Json
from tests.controllers.scene import POOLS, TOPOLOGY, Scene, has_nodes

POOL_TOPOLOGIES = ["openyurt.io/nodepool", "kubernetes.io/zone"]
TOPOLOGIES = [*POOL_TOPOLOGIES, "kubernetes.io/hostname", "garbage", None]


class World:
    """Some pools, nodes and services as the test made them: what the oracle knows."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene, self._chance = scene, chance
        self.pools = [scene.pool() for _ in range(2)]
        self.pool_of: dict[str, str | None] = {scene.node(): None for _ in range(5)}
        self.topology: dict[str, str | None] = {}
        self.slices: dict[str, tuple[str, list[str]]] = {}
        for _ in range(4):
            topology = chance.choice(TOPOLOGIES)
            service = scene.service(topology)
            self.topology[service] = topology
            for _ in range(2):
                nodes = chance.sample(sorted(self.pool_of), chance.randint(0, 2))
                self.slices[scene.slice(service, *nodes)] = (service, nodes)

    def change(self) -> set[str]:
        """One change; the slices that it concerns by document 000."""
        return self._retopologise() if self._chance.random() < 0.4 else self._move()

    def _retopologise(self) -> set[str]:
        service = self._chance.choice(sorted(self.topology))
        before, after = self.topology[service], self._chance.choice(TOPOLOGIES)
        self.topology[service] = after
        annotations = {TOPOLOGY: after, "other": str(self._chance.random())}
        self._scene.admin.patch(
            f"{self._scene.services}/{service}", {"metadata": {"annotations": annotations}}
        )
        return {name for name, (of, _) in self.slices.items() if of == service and before != after}

    def _move(self) -> set[str]:
        node = self._chance.choice(sorted(self.pool_of))
        before, after = self.pool_of[node], self._chance.choice([*self.pools, None])
        if before == after:
            return set()
        members = {each for each, pool in self.pool_of.items() if pool in {before, after} - {None}} | {node}
        self.pool_of[node] = after
        self._scene.relabel(node, after)
        for pool in {before, after} - {None}:
            assert pool is not None
            wanted = sorted(each for each, of in self.pool_of.items() if of == pool)
            self._scene.sees(POOLS, pool, has_nodes(wanted))
        return {
            name
            for name, (service, nodes) in self.slices.items()
            if self.topology[service] in POOL_TOPOLOGIES and members & set(nodes)
        }


def newer_than(scene: Scene, stamp: str) -> Callable[[Json], bool]:
    return lambda obj: scene.stamp(obj) > stamp


@pytest.mark.real
@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_right_slices_are_touched(scene: Scene, seed: int) -> None:
    world = World(scene, random.Random(seed))
    scene.barrier()
    stamps = dict.fromkeys(world.slices, "")
    touched = 0
    for _ in range(10):
        expected = world.change()
        for name in sorted(expected):
            before = stamps[name]
            scene.sees(scene.slices, name, newer_than(scene, before))
        scene.barrier()
        now = {name: scene.trigger(scene.slices, name) for name in world.slices}
        assert {name for name in now if now[name] != stamps[name]} == expected
        stamps = now
        touched += len(expected)
    assert touched > 0


def test_a_value_is_a_time_to_the_microsecond() -> None:
    moment = datetime(2026, 11, 21, 10, 0, 0, 42, tzinfo=UTC)
    assert trigger_value(moment) == "2026-11-21T10:00:00.000042Z"
    assert triggered_at(trigger_value(moment)) == moment.timestamp()


@pytest.mark.parametrize(("age", "met"), [(20.0, False), (5.0, True), (-5.0, True), (-1e9, False)])
def test_a_demand_is_met_by_a_later_touch(age: float, met: bool) -> None:
    now = time.time()
    assert is_met(now - 10, now - age) is met
