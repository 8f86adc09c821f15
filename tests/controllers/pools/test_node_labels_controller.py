"""What the manager writes of the labels of nodes, and when; on the real API server."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pools.node_labels_controller import ALL, MAX_KEYS
from kube.json_type import Json
from kube.requests.node_labels import HOSTNAME, bucket_of
from kube.requests.node_pools import POOL_LABEL
from tests.controllers.support.scene import NODES, Scene

LABELS = "/apis/edgehub.io/v1/nodelabels"
ZONE = "topology.kubernetes.io/zone"

pytestmark = pytest.mark.real


def written(scene: Scene, node: str) -> dict[str, str] | None:
    """What is written of a node; None where it is in no object."""
    found = scene.admin.request("GET", f"{LABELS}/{bucket_of(node)}")
    groups: list[dict[str, Any]] = found.json().get("groups", []) if found.status == 200 else []
    return next((each["labels"] for each in groups if node in each["nodes"]), None)


def service(name: str, keys: str) -> Json:
    annotations = {"topologyKeys": keys}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"ports": [{"port": 80}]}}


def test_it_follows_the_labels_that_services_ask_for_and_no_status(scene: Scene, manager: object) -> None:
    pool = scene.pool()
    node = scene.node(pool)
    path = f"{NODES}/{node}"
    scene.admin.patch(path, {"metadata": {"labels": {ZONE: "z", "rack": "r", HOSTNAME: node}}})
    scene.until(lambda: written(scene, node) == {POOL_LABEL: pool, ZONE: "z"})
    scene.admin.post(scene.services, service("near", '["rack","*"]'))
    scene.until(lambda: written(scene, node) == {POOL_LABEL: pool, ZONE: "z", "rack": "r"})

    def version() -> str:
        return str(scene.admin.get(f"{LABELS}/{bucket_of(node)}")["metadata"]["resourceVersion"])

    before = version()
    status = {"conditions": [{"type": "Ready", "status": "False", "reason": "Changed"}]}
    scene.admin.patch(f"{path}/status", {"status": status})
    scene.admin.patch(path, {"metadata": {"labels": {"nobody": "asks"}}})
    other = next(name for number in range(999) if bucket_of(name := f"{node}-{number}") == bucket_of(node))
    assert version() == before
    scene.admin.post(NODES, {"metadata": {"name": other, "labels": {HOSTNAME: "another"}}})
    scene.until(lambda: written(scene, other) == {HOSTNAME: "another"})
    scene.admin.delete(f"{NODES}/{other}")
    scene.until(lambda: written(scene, other) is None)
    scene.admin.delete(f"{scene.services}/near")
    scene.until(lambda: written(scene, node) == {POOL_LABEL: pool, ZONE: "z"})


def test_all_of_it_is_there_or_nothing(scene: Scene, manager: object) -> None:
    """Hubs take a part for nothing. With too many keys they read the Nodes themselves."""

    def count() -> int:
        return len(scene.admin.get(LABELS)["items"])

    scene.until(lambda: count() == len(ALL))
    for number in range(MAX_KEYS // 16 + 1):
        keys = ",".join(f'"k{number}-{each}"' for each in range(16))
        scene.admin.post(scene.services, service(f"many-{number}", f"[{keys}]"))
    scene.until(lambda: count() == 0)
    for number in range(MAX_KEYS // 16 + 1):
        scene.admin.delete(f"{scene.services}/many-{number}")
    scene.until(lambda: count() == len(ALL))
