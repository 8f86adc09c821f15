"""Nodes as they are read, whole and trimmed."""

from __future__ import annotations

import copy

import pytest

from controllers.cluster.nodes import MAX_ADDRESSES, NODES, parse_address, read_node
from controllers.runtime import metrics
from kube.json_type import Json

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


def test_a_node() -> None:
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
def test_an_address_is_an_ip_address_or_nothing(value: str, address: str) -> None:
    assert parse_address(value) == address
    addresses = [{"type": "InternalIP", "address": value}]
    assert read_node({"metadata": {"name": "n"}, "status": {"addresses": addresses}}).address == address


def test_what_is_kept_reads_the_same() -> None:
    kept = NODES.transform(copy.deepcopy(NODE))
    assert read_node(kept) == read_node(NODE)
    assert "images" not in kept["status"]
    assert "managedFields" not in kept["metadata"]


def test_a_kubelet_cannot_have_the_manager_read_addresses_without_end() -> None:
    """The API server takes 30,000 of them; those beyond the bound are no claim."""
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


def test_a_node_that_nobody_hears() -> None:
    at = "2026-01-02T03:04:05Z"
    away = copy.deepcopy(NODE)
    away["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": at, "lastHeartbeatTime": "before"},
        {"type": "Autonomy", "status": "True", "reason": "R", "message": "M"},
    ]
    for node in (read_node(away), read_node(NODES.transform(away))):
        assert (node.ready, node.unheard_since, node.autonomy) == (False, at, ("True", "R", "M"))
    assert read_node(NODE).unheard_since == ""
