"""Document 000's rules for EndpointSlices, on the real API server, and how the work is spread."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.controllers.process import ManagerProcess
from tests.controllers.scene import TOPOLOGY, Scene

pytestmark = [pytest.mark.real]

POOL = "openyurt.io/nodepool"


@pytest.mark.usefixtures("manager")
def test_all_slices_of_a_service_whose_topology_changed(scene: Scene) -> None:
    service = scene.service()
    slices = [scene.backends(service, "a"), *(scene.slice(service, "b") for _ in range(2))]
    alone = scene.slice(scene.service(), "a")
    scene.barrier()
    scene.admin.patch(f"{scene.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: POOL}}})
    for each in slices:
        scene.sees(scene.slices, each, scene.triggered)
    assert scene.trigger(scene.slices, alone) == ""


@pytest.mark.usefixtures("manager")
def test_slices_with_an_endpoint_on_a_node_of_the_pool(scene: Scene) -> None:
    pool = scene.pool()
    node = scene.node()
    service, older, unbound = scene.service(POOL), scene.service("kubernetes.io/zone"), scene.service()
    touched = [scene.slice(service, node, "elsewhere"), scene.slice(older, node)]
    left = [scene.slice(service, "elsewhere"), scene.slice(unbound, node), scene.slice("no-service", node)]
    scene.barrier()
    scene.relabel(node, pool)
    for each in touched:
        scene.sees(scene.slices, each, scene.triggered)
    scene.barrier()
    assert [each for each in left if scene.trigger(scene.slices, each)] == []


def test_many_slices_are_spread_and_a_second_event_costs_nothing(
    scene: Scene, manager: ManagerProcess
) -> None:
    count = 200
    service = scene.service()
    for _ in range(count):
        scene.slice(service, "a")
    scene.barrier()
    mark = scene.cloud.audit_mark()
    began = time.monotonic()
    for value in (POOL, "kubernetes.io/hostname", POOL):
        scene.admin.patch(f"{scene.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: value}}})

    def touched() -> int:
        slices = scene.admin.get(scene.slices)["items"]
        return sum(scene.triggered(each) for each in slices)

    scene.until(lambda: touched() == count)
    took = time.monotonic() - began
    # 50 a second after the first 10.
    assert took >= (count - 10) / 50 * 0.9
    scene.until(lambda: manager.metric("edgehub_manager_queue_depth") == 0)
    scene.barrier()
    writes = [each.uri for each in scene.writes(mark) if scene.slices in each.uri]
    # The first few may have been written before the second event came.
    assert count <= len(writes) <= count + 30
    repeated = [len(list(same)) for _, same in itertools.groupby(sorted(writes))]
    assert max(repeated) <= 3


@pytest.mark.usefixtures("manager")
def test_garbage_in_the_annotation_is_overwritten(scene: Scene) -> None:
    service = scene.service()
    name = scene.slice(service, "a")
    garbage = {"metadata": {"annotations": {"openyurt.io/updateTrigger": "not a time \u0000"}}}
    scene.admin.patch(f"{scene.slices}/{name}", garbage)
    scene.barrier()
    scene.admin.patch(f"{scene.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: POOL}}})
    scene.sees(scene.slices, name, lambda obj: scene.stamp(obj).endswith("Z"))
    assert scene.stamp(scene.admin.get(f"{scene.slices}/{name}")) > "2020"
