"""Pods, Services, service grids and NodeBuckets as they are read, whole and trimmed, whatever is in them."""

from __future__ import annotations

import copy

import pytest

from controllers.cluster.node_pools import NodeBucket, read_bucket
from controllers.cluster.pods import PODS, RECORDS, read_pod
from controllers.cluster.service_grids import read_grid
from controllers.cluster.services import SERVICES, Owner, Service, read_service
from kube.json_type import Json

RECORD = RECORDS["node.kubernetes.io/unreachable"]
TOLERATION = {"key": "gpu", "operator": "Exists"}
POD: Json = {
    "metadata": {
        "namespace": "ns",
        "name": "p",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {RECORD: "300", "other": "x"},
        "managedFields": [{"manager": "kubelet"}],
    },
    "spec": {"nodeName": "n1", "tolerations": [TOLERATION], "containers": [{"name": "large"}]},
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    },
}


def test_a_pod() -> None:
    trimmed = PODS.transform(copy.deepcopy(POD))
    assert "containers" not in trimmed["spec"]
    for pod in (read_pod(POD), read_pod(trimmed)):
        assert (pod.namespace, pod.name, pod.node, pod.version, pod.ready) == ("ns", "p", "n1", "7", True)
        assert (pod.tolerations, pod.records) == ((TOLERATION,), {RECORD: "300"})
        assert list(PODS.indexers["node"](pod)) == ["n1"]


def test_its_own_status_changes_no_fact() -> None:
    unready = copy.deepcopy(POD)
    unready["status"]["conditions"][1]["status"] = "False"
    unready["metadata"]["resourceVersion"] = "8"
    assert read_pod(unready) == read_pod(POD)


def test_a_service() -> None:
    owners = [
        {"kind": "Other", "uid": "x"},
        {"kind": "ServiceGrid", "name": "g", "uid": "u", "controller": True},
    ]
    service = read_service(
        {
            "metadata": {
                "namespace": "ns",
                "name": "s",
                "annotations": {"openyurt.io/topologyKeys": "openyurt.io/nodepool"},
                "labels": {"superedge.io/grid-selector": "g"},
                "ownerReferences": owners,
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            }
        }
    )
    assert service == Service(
        "ns",
        "s",
        topology="openyurt.io/nodepool",
        owner=Owner("ServiceGrid", "g", "u"),
        grid="g",
        deleting=True,
    )
    assert list(SERVICES.indexers["owner"](service)) == ["u"]


def test_a_grid() -> None:
    grid = read_grid(
        {
            "metadata": {"namespace": "ns", "name": "g", "uid": "u", "generation": 4, "labels": {"a": "b"}},
            "spec": {"gridUniqKey": "zone1", "template": {"ports": [{"port": 80}]}},
            "status": {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    assert (grid.service_name, grid.key, grid.labels) == ("g-svc", "zone1", {"a": "b"})
    assert (grid.generation, grid.observed, len(grid.conditions)) == (4, 3, 1)
    assert (grid.reference.kind, grid.reference.namespace, grid.reference.uid) == ("ServiceGrid", "ns", "u")
    assert not grid.deleting


def test_garbage_is_a_grid_without_a_key() -> None:
    grid = read_grid({"metadata": {"name": "g"}, "spec": {"gridUniqKey": 5, "template": []}, "status": 7})
    assert (grid.key, grid.template, grid.conditions) == ("", {}, ())


LABELS = {"labels": {"openyurt.io/pool-name": "p"}}


@pytest.mark.parametrize(
    ("obj", "bucket"),
    [
        (
            {"metadata": LABELS, "numNodes": 2, "nodes": [{"name": "a"}, {"name": "b"}]},
            NodeBucket("p", ("a", "b")),
        ),
        ({"metadata": LABELS}, NodeBucket("p")),
        ({"metadata": {}, "nodes": [{"name": "a"}]}, NodeBucket("", ("a",))),
        ({"nodes": [{"name": 5}, "x", {}]}, NodeBucket("")),
    ],
)
def test_a_bucket(obj: Json, bucket: NodeBucket) -> None:
    assert read_bucket(obj) == bucket
