"""From a ServiceGrid to its Service and back, on the real API server."""

from __future__ import annotations

import json

import pytest

from controllers.cluster.kinds import Owner, Service
from controllers.grids import Grid, grids_of, ownership_conflict
from tests.controllers.support.scene import TEMPLATE, Scene, condition

pytestmark = [pytest.mark.real]


def ready(scene: Scene, name: str, reason: str = "ServiceReady") -> None:
    grid = scene.sees(
        scene.grids,
        name,
        lambda obj: (
            condition(obj, "Ready")["reason"] == reason
            and condition(obj, "Ready")["observedGeneration"] == obj["metadata"]["generation"]
        ),
    )
    assert grid["status"]["observedGeneration"] == grid["metadata"]["generation"]


def test_a_grid_gets_its_service(scene: Scene, manager: object) -> None:
    name = scene.grid()
    service = scene.sees(scene.services, f"{name}-svc", lambda obj: obj["spec"]["clusterIP"])
    meta = service["metadata"]
    assert meta["labels"] == {
        "team": "a",
        "superedge.io/grid-selector": name,
        "superedge.io/grid-uniq-key": "zone1",
    }
    assert meta["annotations"]["topologyKeys"] == '["zone1"]'
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ServiceGrid", name, True)
    assert service["spec"]["selector"] == {"appGrid": "echo"}
    assert service["spec"]["ports"] == TEMPLATE["ports"]
    ready(scene, name)
    assert scene.events(name, scene.namespace) == ["Created"]


def test_a_labelled_orphan_service_is_adopted_and_an_unlabelled_one_is_not(
    scene: Scene, manager: object
) -> None:
    orphan, stranger = scene.name("grid"), scene.name("grid")
    spec = {"ports": [{"port": 1}]}
    label = {"superedge.io/grid-selector": orphan}
    for name, labels in ((orphan, label), (stranger, {})):
        scene.admin.post(
            scene.services, {"metadata": {"name": f"{name}-svc", "labels": labels}, "spec": spec}
        )
        scene.grid(name=name)
    adopted = scene.sees(scene.services, f"{orphan}-svc", lambda obj: obj["metadata"]["ownerReferences"])
    assert adopted["spec"]["ports"][0]["port"] == 80
    ready(scene, orphan)
    ready(scene, stranger, "NameConflict")
    left = scene.admin.get(f"{scene.services}/{stranger}-svc")
    assert left["spec"]["ports"][0]["port"] == 1
    assert "ownerReferences" not in left["metadata"]
    assert scene.events(stranger, scene.namespace) == ["NameConflict"]

    scene.admin.delete(f"{scene.services}/{stranger}-svc")
    ready(scene, stranger)


def test_surplus_services_of_the_grid_are_deleted(scene: Scene, manager: object) -> None:
    name = scene.grid()
    service = scene.sees(scene.services, f"{name}-svc", lambda obj: obj["metadata"]["ownerReferences"])
    meta = {"name": f"{name}-old", "ownerReferences": service["metadata"]["ownerReferences"]}
    scene.admin.post(scene.services, {"metadata": meta, "spec": {"ports": [{"port": 1}]}})
    scene.waits_for_end(scene.services, f"{name}-old")
    assert scene.there(scene.services, f"{name}-svc")


def test_an_empty_key_and_a_refused_template_are_reported(scene: Scene, manager: object) -> None:
    empty = scene.grid(key="")
    ready(scene, empty, "EmptyGridUniqKey")
    scene.until(lambda: scene.events(empty, scene.namespace) == ["Empty"])
    assert not scene.there(scene.services, f"{empty}-svc")

    bad = scene.grid(key="a b")
    ready(scene, bad, "InvalidGridUniqKey")
    assert not scene.there(scene.services, f"{bad}-svc"), "hubs would keep every endpoint of it"

    refused = scene.grid(ports=[{"port": 80, "name": "Not A Name"}])
    ready(scene, refused, "ServiceRefused")
    fine = scene.grid(key="topology.kubernetes.io/zone")
    ready(scene, fine)
    scene.admin.patch(f"{scene.grids}/{refused}", {"spec": {"template": TEMPLATE}})
    ready(scene, refused)
    annotations = scene.admin.get(f"{scene.services}/{fine}-svc")["metadata"]["annotations"]
    assert json.loads(annotations["topologyKeys"]) == ["topology.kubernetes.io/zone"]


def test_an_ignored_template_field_is_reported(scene: Scene, manager: object) -> None:
    name = scene.grid(externalIPs=["192.0.2.1"], type="LoadBalancer", loadBalancerIP="192.0.2.2")
    ready(scene, name)
    spec = scene.admin.get(f"{scene.services}/{name}-svc")["spec"]
    assert spec["type"] == "ClusterIP"
    assert not {"externalIPs", "loadBalancerIP"} & set(spec)
    message = condition(scene.admin.get(f"{scene.grids}/{name}"), "Ready")["message"]
    assert message.endswith("without fields that a template cannot set: externalIPs, loadBalancerIP, type")
    assert "FieldsRefused" in scene.events(name, scene.namespace)


@pytest.mark.timeout(240)
def test_a_service_is_deleted_with_its_grid(scene: Scene, manager: object) -> None:
    name = scene.grid()
    ready(scene, name)
    scene.admin.delete(f"{scene.grids}/{name}")
    # The garbage collector discovers new kinds every 30 s.
    scene.waits_for_end(scene.services, f"{name}-svc", patience=120.0)
    assert not scene.there(scene.grids, name)


@pytest.mark.parametrize(
    ("service", "conflict"),
    [
        (Service("ns", "g-svc", owner=Owner("ServiceGrid", "g", "u1")), ""),
        (Service("ns", "g-svc", owner=Owner("ServiceGrid", "g", "u0")), "belongs to ServiceGrid g"),
        (Service("ns", "g-svc", owner=Owner("Other", "o", "u2"), grid="g"), "belongs to Other o"),
        (Service("ns", "g-svc", grid="g"), ""),
        (Service("ns", "g-svc", grid="h"), "was not made for this grid"),
        (Service("ns", "g-svc"), "was not made for this grid"),
    ],
)
def test_a_service_with_another_owner_is_a_conflict(service: Service, conflict: str) -> None:
    reason = ownership_conflict(Grid("ns", "g", uid="u1"), service)
    assert bool(reason) == bool(conflict)
    assert conflict in reason


@pytest.mark.parametrize(
    ("name", "service", "grids"),
    [
        ("web", Service("ns", "web"), set()),
        ("web-svc", Service("ns", "web-svc"), {"web"}),
        ("web", Service("ns", "web", grid="g"), {"g"}),
        ("web", Service("ns", "web", owner=Owner("ServiceGrid", "g", "u"), grid="h"), {"g", "h"}),
        ("web", Service("ns", "web", owner=Owner("Deployment", "g", "u")), set()),
    ],
)
def test_a_service_enqueues_its_grids(name: str, service: Service, grids: set[str]) -> None:
    wanted = {("ns", grid) for grid in grids}
    assert grids_of(("ns", name), None, service) == wanted
    assert grids_of(("ns", name), service, None) == wanted
    assert grids_of(("ns", name), service, service) == set()
