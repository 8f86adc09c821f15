"""The rules of triggers for Endpoints, each shown both ways on the real API server."""

from __future__ import annotations

import pytest

from tests.controllers.support.scene import NODES, POOLS, TOPOLOGY, Scene, leaders

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("manager")]

POOL, HOST = "openyurt.io/nodepool", "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("before", "after"), [(None, POOL), (POOL, HOST), (HOST, None)], ids=["added", "changed", "removed"]
)
def test_a_service_whose_topology_changed(scene: Scene, before: str | None, after: str | None) -> None:
    service, bystander = scene.service(before), scene.service(POOL)
    scene.backends(service, "a")
    scene.backends(bystander, "a")
    # Seen by the manager when the pool's event, which comes after, has had its effect.
    scene.barrier()
    scene.admin.patch(f"{scene.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: after}}})
    scene.sees(scene.endpoints, service, scene.triggered)
    assert scene.trigger(scene.endpoints, bystander) == ""


def test_a_service_whose_topology_stayed(scene: Scene) -> None:
    service = scene.service(POOL)
    scene.backends(service, "a")
    scene.barrier()
    change = {"metadata": {"annotations": {"other": "x"}, "labels": {"a": "b"}}}
    scene.admin.patch(f"{scene.services}/{service}", change)
    scene.barrier()
    assert scene.trigger(scene.endpoints, service) == ""


def test_nodes_that_join_and_leave_a_pool(scene: Scene) -> None:
    pool = scene.pool()
    stays = scene.node(pool)
    joins = scene.node()
    stranger = scene.node()
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [stays])
    # Seen before there are endpoints, so that nothing but what follows can trigger them.
    scene.barrier()
    services = {node: scene.service(POOL) for node in (stays, joins, stranger)}
    for node, service in services.items():
        scene.backends(service, node)
    elsewhere = scene.service(HOST)
    scene.backends(elsewhere, joins, stays)
    scene.barrier()

    scene.relabel(joins, pool)
    scene.sees(scene.endpoints, services[joins], scene.triggered)
    scene.sees(scene.endpoints, services[stays], scene.triggered)

    before = scene.trigger(scene.endpoints, services[joins])
    scene.relabel(joins, None)
    scene.sees(scene.endpoints, services[joins], lambda obj: scene.stamp(obj) > before)
    scene.barrier()
    assert scene.trigger(scene.endpoints, services[stranger]) == ""
    assert scene.trigger(scene.endpoints, elsewhere) == ""


def test_readiness_and_leaders_are_no_change_of_a_pool(scene: Scene) -> None:
    pool = scene.pool(interConnectivity=True)
    node = scene.node(pool)
    scene.sees(POOLS, pool, lambda obj: leaders(obj) == [node])
    scene.barrier()
    service = scene.service(POOL)
    scene.backends(service, node)
    scene.barrier()
    scene.set_node(node, ready=False)
    scene.sees(POOLS, pool, lambda obj: leaders(obj) == [] and obj["status"]["readyNodeNum"] == 0)
    scene.barrier()
    assert scene.trigger(scene.endpoints, service) == ""


def test_a_deleted_pool(scene: Scene) -> None:
    pool = scene.pool()
    node, other = scene.node(pool), scene.node()
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [node])
    scene.barrier()
    service, bystander = scene.service(POOL), scene.service(POOL)
    scene.backends(service, node)
    scene.backends(bystander, other)
    scene.barrier()
    # The policy refuses to delete a pool that has nodes; a cluster may be without it.
    policy = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/edgehub-nodepool-deletion"
    )
    binding = scene.admin.get(policy)
    scene.admin.delete(policy)
    try:
        scene.until(lambda: scene.admin.request("DELETE", f"{POOLS}/{pool}").status in {200, 404})
        scene.sees(scene.endpoints, service, scene.triggered)
    finally:
        del binding["metadata"]["resourceVersion"]
        scene.admin.post(policy.rpartition("/")[0], binding)
    scene.barrier()
    assert scene.trigger(scene.endpoints, bystander) == ""
    assert scene.there(NODES, node)
