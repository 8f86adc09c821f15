"""The trigger controllers: how writes are spread, and the slices that get a trigger, on a real API server."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from controllers.cluster.kinds import SERVICES, Service
from controllers.cluster.node_pools import NODEBUCKETS
from controllers.runtime import metrics
from controllers.triggers import update_trigger
from controllers.triggers.backends import triggered_at
from controllers.triggers.update_trigger import (
    BURST,
    RATE,
    RECORD_INTERVAL,
    EndpointSlicesTriggerController,
    is_met,
    topology_changed,
    trigger_value,
)
from kube.json_type import Json
from kube.requests.node_pools import NODEPOOL_TYPE
from kube.requests.request_info import ResourceType
from tests.controllers.support.pretended import PretendedCluster, working
from tests.controllers.support.scene import POOL_TOPOLOGY, POOLS, TOPOLOGY, Scene, has_nodes

POOL_TOPOLOGIES = ["openyurt.io/nodepool", "kubernetes.io/zone"]
TOPOLOGIES = [*POOL_TOPOLOGIES, "kubernetes.io/hostname", "garbage", None]


class World:
    """The oracle's state: pools, nodes and services as the test made them. The first slice of each service has the
    endpoints of its Endpoints."""

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
            for make in (scene.backends, scene.slice):
                nodes = chance.sample(sorted(self.pool_of), chance.randint(0, 2))
                self.slices[make(service, *nodes)] = (service, nodes)

    def change(self) -> set[str]:
        """Make a change; return the slices that it affects by OpenYurt's rules."""
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


SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices")
MANY = 1000


def service(name: str, topology: str) -> Json:
    return {"metadata": {"namespace": "ns", "name": name, "annotations": {TOPOLOGY: topology}}}


def endpoint_slice(name: str, service: str, *nodes: str) -> Json:
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"namespace": "ns", "name": name, "labels": labels},
        "endpoints": [{"nodeName": node} for node in nodes],
    }


def pool(name: str, *nodes: str) -> Json:
    """Return a pool with counted nodes; `uncounted` has no status."""
    return {"metadata": {"name": name}, "status": {"nodes": list(nodes)}}


def fallen(name: str, *nodes: str) -> Json:
    """Return the same pool without ready nodes, and so without leaders."""
    status = {"nodes": list(nodes), "readyNodeNum": 0, "unreadyNodeNum": len(nodes), "leaderEndpoints": []}
    return {"metadata": {"name": name}, "status": status}


def uncounted(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {}}


def many() -> PretendedCluster:
    """Create a Service with many slices."""
    cluster = PretendedCluster()
    cluster.put(SERVICES.type, service("web", "a"))
    for number in range(MANY):
        cluster.put(SLICES, endpoint_slice(f"web-{number}", "web", "n"))
    return cluster


@pytest.mark.looptime
async def test_the_slices_of_one_event_are_spread_evenly() -> None:
    cluster = many()
    async with working(cluster, EndpointSlicesTriggerController):
        cluster.put(SERVICES.type, service("web", "b"))
        await asyncio.sleep(MANY / RATE + 1)
    times = [at for at, _ in cluster.patches]
    assert len({path for _, path in cluster.patches}) == len(times) == MANY
    assert times[-1] - times[0] == pytest.approx((MANY - BURST) / RATE, abs=0.01)
    # Within any second at most the rate, plus the burst once.
    assert all(times[n + int(RATE) + BURST] - times[n] >= 1 - 1e-6 for n in range(MANY - int(RATE) - BURST))


@pytest.mark.looptime
async def test_a_second_event_while_queued_costs_no_second_write() -> None:
    cluster = many()
    async with working(cluster, EndpointSlicesTriggerController) as controller:
        cluster.put(SERVICES.type, service("web", "b"))
        cluster.put(SERVICES.type, service("web", "c"))
        await asyncio.sleep(MANY / 2 / RATE)
        early = len(cluster.patches)
        assert MANY * 0.4 < early < MANY * 0.6
        cluster.put(SERVICES.type, service("web", "d"))
        await asyncio.sleep(2 * MANY / RATE)
        assert not controller.busy()
    writes = Counter(path for _, path in cluster.patches)
    # Slices written before the last event are written again after it, the others only once.
    first = {path for _, path in cluster.patches[:early]}
    twice = {path for path in writes if writes[path] == 2}
    assert first <= twice
    assert (
        len(twice - first) <= EndpointSlicesTriggerController.workers
    )  # writes in progress when the event arrived
    assert len(writes) == MANY
    assert max(writes.values()) == 2


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("before", "after", "touched"),
    [
        (uncounted("p"), pool("p", "a", "b"), {"on-a", "on-b"}),
        (uncounted("p"), pool("p"), set()),
        (pool("p"), pool("p", "a"), {"on-a"}),
        (pool("p", "a"), pool("p", "a", "b"), {"on-a", "on-b"}),
        (pool("p", "a", "b"), pool("p", "b"), {"on-a", "on-b"}),
        (pool("p", "a"), pool("p", "a"), set()),
        (pool("p", "a"), fallen("p", "a"), set()),
        (pool("p", "a"), None, {"on-a"}),
    ],
    ids=[
        "first count",
        "first count of none",
        "first node",
        "joins",
        "leaves",
        "same",
        "not ready",
        "deleted",
    ],
)
async def test_a_changed_pool_triggers_the_slices_of_its_topology(
    before: Json, after: Json | None, touched: set[str]
) -> None:
    cluster = PretendedCluster()
    cluster.put(SERVICES.type, service("pooled", POOL_TOPOLOGY))
    cluster.put(SERVICES.type, service("other", "kubernetes.io/hostname"))
    for node in "abc":
        cluster.put(SLICES, endpoint_slice(f"on-{node}", "pooled", node))
        cluster.put(SLICES, endpoint_slice(f"other-{node}", "other", node))
    cluster.put(NODEPOOL_TYPE, before)
    async with working(cluster, EndpointSlicesTriggerController) as controller:
        await asyncio.sleep(5)
        assert cluster.patches == []
        if after is None:
            cluster.delete(NODEPOOL_TYPE, "p")
        else:
            cluster.put(NODEPOOL_TYPE, after)
        await asyncio.sleep(5)
        assert not controller.busy()
    assert cluster.patched == sorted(touched)


@pytest.mark.looptime
async def test_changes_made_without_a_manager_trigger_updates_at_its_start() -> None:
    cluster = PretendedCluster()
    for name in ("annotated", "kept", "bared"):
        cluster.put(SERVICES.type, service(name, "a"))
        cluster.put(SLICES, endpoint_slice(f"{name}-0", name, "n"))
    cluster.put(SERVICES.type, service("pooled", POOL_TOPOLOGY))
    for node in "xyz":
        cluster.put(SLICES, endpoint_slice(f"on-{node}", "pooled", node))
    cluster.put(NODEPOOL_TYPE, pool("deleted", "x"))
    cluster.put(NODEPOOL_TYPE, pool("same", "y"))
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(3 * RECORD_INTERVAL)
    # At a first start there is no record; unchanged objects are recorded once.
    assert (len(cluster.applied), cluster.patches) == (1, [])

    cluster.put(SERVICES.type, service("annotated", "b"))
    cluster.put(SERVICES.type, {"metadata": {"namespace": "ns", "name": "bared"}})
    cluster.delete(NODEPOOL_TYPE, "deleted")
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(3 * RECORD_INTERVAL)
    assert cluster.patched == ["annotated-0", "bared-0", "on-x"]
    assert len(cluster.applied) == 2
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(3 * RECORD_INTERVAL)
    assert (len(cluster.applied), len(cluster.patches)) == (2, 3)


@pytest.mark.looptime
async def test_triggers_queued_when_the_manager_ended_are_written_by_the_next() -> None:
    cluster = many()
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(2 * RECORD_INTERVAL)
        cluster.put(SERVICES.type, service("web", "b"))
        await asyncio.sleep(MANY / 2 / RATE)
    assert len(cluster.patches) < MANY
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(MANY / RATE + 1)
    assert len({path for _, path in cluster.patches}) == MANY


@pytest.mark.looptime
async def test_a_record_that_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_trigger, "MAX_RECORD", 10)
    cluster = many()
    async with working(cluster, EndpointSlicesTriggerController) as controller:
        await asyncio.sleep(2 * RECORD_INTERVAL)
        name = {"controller": controller.name}
        assert metrics.REGISTRY.get_sample_value("edgehub_manager_unrecorded", name) == 1
        monkeypatch.undo()
        await asyncio.sleep(2 * RECORD_INTERVAL)
        assert metrics.REGISTRY.get_sample_value("edgehub_manager_unrecorded", name) == 0
    assert len(cluster.applied) == 1


@pytest.mark.looptime
async def test_without_node_pools_buckets_define_the_nodes_of_pools() -> None:
    def bucket(name: str, pool: str, *nodes: str) -> Json:
        meta = {"name": name, "labels": {"openyurt.io/pool-name": pool}}
        return {"metadata": meta, "nodes": [{"name": node} for node in nodes]}

    cluster = PretendedCluster(node_pools=False)
    cluster.put(SERVICES.type, service("pooled", POOL_TOPOLOGY))
    for node in "abc":
        cluster.put(SLICES, endpoint_slice(f"on-{node}", "pooled", node))
    cluster.put(NODEBUCKETS.type, bucket("p-1", "p", "a"))
    cluster.put(NODEBUCKETS.type, bucket("q-1", "q"))
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(2 * RECORD_INTERVAL)
        assert cluster.patches == []
        cluster.put(NODEBUCKETS.type, bucket("p-2", "p", "b"))
        await asyncio.sleep(2 * RECORD_INTERVAL)
        assert cluster.patched == ["on-a", "on-b"]
    cluster.delete(NODEBUCKETS.type, "p-2")
    async with working(cluster, EndpointSlicesTriggerController):
        await asyncio.sleep(RECORD_INTERVAL)
    assert cluster.patched == ["on-a", "on-a", "on-b", "on-b"]


@pytest.mark.real
@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_affected_slices_are_triggered(scene: Scene, seed: int) -> None:
    def newer_than(stamp: str) -> Callable[[Json], bool]:
        return lambda obj: scene.stamp(obj) > stamp

    world = World(scene, random.Random(seed))
    scene.barrier()
    of_service = {service: name for name, (service, _) in reversed(world.slices.items())}

    def stamps_now() -> tuple[dict[str, str], dict[str, str]]:
        """Return the trigger values of the slices, and of the Endpoints by the slice that has their endpoints."""
        slices = {name: scene.trigger(scene.slices, name) for name in world.slices}
        return slices, {name: scene.trigger(scene.endpoints, each) for each, name in of_service.items()}

    stamps = stamps_now()
    touched = 0
    for _ in range(10):
        expected = world.change()
        for name in sorted(expected):
            scene.sees(scene.slices, name, newer_than(stamps[0][name]))
        scene.barrier()
        now = stamps_now()
        assert {name for name in now[0] if now[0][name] != stamps[0][name]} == expected
        assert {name for name in now[1] if now[1][name] != stamps[1][name]} == expected & set(now[1])
        stamps = now
        touched += len(expected)
    assert touched > 0


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (Service("n", "s"), Service("n", "s", topology="x"), True),
        (Service("n", "s", topology="x"), Service("n", "s", topology="y"), True),
        (Service("n", "s", topology="x"), Service("n", "s"), True),
        (Service("n", "s", topology=""), Service("n", "s"), True),
        (Service("n", "s", topology="x", version="1"), Service("n", "s", topology="x", version="2"), False),
        (None, Service("n", "s", topology="x"), False),
        (Service("n", "s", topology="x"), None, False),
    ],
)
def test_a_change_of_the_topology_is_recognized(
    old: Service | None, new: Service | None, changed: bool
) -> None:
    assert topology_changed(old, new) is changed


def test_a_trigger_value_is_a_time_in_microseconds() -> None:
    moment = datetime(2026, 11, 21, 10, 0, 0, 42, tzinfo=UTC)
    assert trigger_value(moment) == "2026-11-21T10:00:00.000042Z"
    assert triggered_at(trigger_value(moment)) == moment.timestamp()
    assert triggered_at("not a time \0") == 0, "what somebody else wrote is written over"


@pytest.mark.parametrize(("age", "met"), [(20.0, False), (5.0, True), (-5.0, True), (-1e9, False)])
def test_a_pending_trigger_is_satisfied_by_a_later_write(age: float, met: bool) -> None:
    now = time.time()
    assert is_met(now - 10, now - age) is met
