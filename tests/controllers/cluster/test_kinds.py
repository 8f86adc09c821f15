"""The facts that the manager reads from Nodes, Pods, Services and other kinds."""

from __future__ import annotations

import copy

import pytest

from controllers.cluster.kinds import (
    MAX_ADDRESSES,
    NODES,
    PODS,
    RECORDS,
    SERVICES,
    Owner,
    Service,
    parse_address,
    read_node,
    read_pod,
    read_service,
)
from controllers.cluster.node_pools import NodeBucket, read_bucket
from controllers.grids import read_grid
from controllers.runtime import metrics
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


def test_facts_of_a_pod_are_read() -> None:
    trimmed = PODS.transform(copy.deepcopy(POD))
    assert "containers" not in trimmed["spec"]
    for pod in (read_pod(POD), read_pod(trimmed)):
        assert (pod.namespace, pod.name, pod.node, pod.version, pod.ready) == ("ns", "p", "n1", "7", True)
        assert (pod.tolerations, pod.records) == ((TOLERATION,), {RECORD: "300"})
        assert list(PODS.indexers["node"](pod)) == ["n1"]


def test_a_changed_readiness_changes_no_fact_of_a_pod() -> None:
    unready = copy.deepcopy(POD)
    unready["status"]["conditions"][1]["status"] = "False"
    unready["metadata"]["resourceVersion"] = "8"
    assert read_pod(unready) == read_pod(POD)


def test_facts_of_a_service_are_read() -> None:
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


def test_facts_of_a_grid_are_read() -> None:
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


def test_a_malformed_grid_has_no_key() -> None:
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
def test_facts_of_a_node_bucket_are_read(obj: Json, bucket: NodeBucket) -> None:
    assert read_bucket(obj) == bucket


NODE: Json = {
    "metadata": {
        "name": "a",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"apps.openyurt.io/nodepool": "p"},
        "annotations": {"x": "y"},
        "managedFields": [{"manager": "kubelet"}],
    },
    "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
    "status": {
        "addresses": [
            {"type": "Hostname", "address": "a"},
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "fd00::1"},
        ],
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        "images": [{"names": ["large"]}],
    },
}


def test_facts_of_a_node_are_read() -> None:
    node = read_node(NODE)
    assert (node.name, node.pool, node.ready, node.address) == ("a", "p", True, "10.0.0.1")
    assert (node.annotations, node.version, node.deleting) == ({"x": "y"}, "7", False)
    assert node.taints == ({"key": "t", "effect": "NoSchedule"},)
    assert list(NODES.indexers["pool"](node)) == ["p"]
    assert set(NODES.indexers["address"](node)) == {"10.0.0.1", "fd00::1"}


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("FD00:0::1", "fd00::1"),
        ("10.0.0.9,node-1/6.6.6.6", ""),
        ("10.0.0.1 ", ""),
        ("10.0.0.1/24", ""),
        ("fe80::1%eth0", ""),
        ("fe80::1%a,node-1/6.6.6.6", ""),
        ("node-1", ""),
        ("::", ""),
        ("224.0.0.1", ""),
        ("٣.3.3.3", ""),
        ("", ""),
    ],
)
def test_a_node_address_that_is_no_ip_address_is_ignored(value: str, address: str) -> None:
    assert parse_address(value) == address
    addresses = [{"type": "InternalIP", "address": value}]
    assert read_node({"metadata": {"name": "n"}, "status": {"addresses": addresses}}).address == address


def test_a_pruned_node_has_the_facts_of_a_complete_one() -> None:
    stored = NODES.transform(copy.deepcopy(NODE))
    assert read_node(stored) == read_node(NODE)
    assert "images" not in stored["status"]
    assert "managedFields" not in stored["metadata"]


def test_addresses_of_a_node_are_read_up_to_a_bound() -> None:
    """The API server accepts 30,000; those beyond the bound are ignored."""
    many = copy.deepcopy(NODE)
    many["status"]["addresses"] = [
        {"type": "InternalIP", "address": f"10.0.{number >> 8}.{number & 255}"} for number in range(30_000)
    ]
    counted = metrics.BOUNDS_REACHED.labels("addresses of a Node")
    before = counted._value.get()
    node = read_node(NODES.transform(copy.deepcopy(many)))
    assert node == read_node(many)
    assert len(node.addresses) == MAX_ADDRESSES
    assert counted._value.get() == before + 2


def test_a_node_without_heartbeats_is_silent_since_its_last_transition() -> None:
    at = "2026-01-02T03:04:05Z"
    away = copy.deepcopy(NODE)
    away["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": at, "lastHeartbeatTime": "before"},
        {"type": "Autonomy", "status": "True", "reason": "R", "message": "M"},
    ]
    for node in (read_node(away), read_node(NODES.transform(away))):
        assert (node.ready, node.unheard_since, node.autonomy) == (False, at, ("True", "R", "M"))
    assert read_node(NODE).unheard_since == ""
