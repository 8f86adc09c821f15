"""The rules of triggers for EndpointSlices, on the real API server."""

from __future__ import annotations

import pytest

from tests.controllers.support.scene import TOPOLOGY, Scene

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("manager")]

POOL = "openyurt.io/nodepool"


def test_all_slices_of_a_service_whose_topology_changed(scene: Scene) -> None:
    service = scene.service()
    slices = [scene.backends(service, "a"), *(scene.slice(service, "b") for _ in range(2))]
    alone = scene.slice(scene.service(), "a")
    scene.barrier()
    scene.admin.patch(f"{scene.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: POOL}}})
    for each in slices:
        scene.sees(scene.slices, each, scene.triggered)
    assert scene.trigger(scene.slices, alone) == ""


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


def test_garbage_in_the_annotation_is_overwritten(scene: Scene) -> None:
    service = scene.service()
    name = scene.slice(service, "a")
    garbage = {"metadata": {"annotations": {"openyurt.io/updateTrigger": "not a time \u0000"}}}
    scene.admin.patch(f"{scene.slices}/{name}", garbage)
    scene.barrier()
    scene.admin.patch(f"{scene.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: POOL}}})
    scene.sees(scene.slices, name, lambda obj: scene.stamp(obj).endswith("Z"))
    assert scene.stamp(scene.admin.get(f"{scene.slices}/{name}")) > "2020"
