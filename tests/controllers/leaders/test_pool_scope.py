"""The rendered ConfigMap and Role of a pool's hubs, and the comparison with the live ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from addons.pool.pool_config import parse_pool_config
from controllers.cluster.node_pools import MARK, NodePool, PoolScopedResource, read_pool
from controllers.leaders import differs, leader_config, leader_hubs_role
from kube.peers import LeaderHub

POOL = NodePool(
    "hangzhou",
    uid="u",
    interconnected=True,
    leaders=(LeaderHub("b", "10.0.0.2"), LeaderHub("a", "fd00::1")),
    pool_scope=(
        PoolScopedResource("discovery.k8s.io", "v1", "endpointslices"),
        PoolScopedResource("", "v1", "services"),
    ),
)

HUBS = (LeaderHub("a", "fd00::1"), LeaderHub("b", "10.0.0.2"), LeaderHub("c", "10.0.0.3"))


def test_the_config_map_has_openyurts_format() -> None:
    config = leader_config(POOL, HUBS, "kube-system")
    assert config["metadata"]["name"] == "leader-hub-hangzhou"
    assert config["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "edgehub-manager",
        "openyurt.io/configmap-name": "leader-hub-hangzhou",
    }
    assert config["data"] == {
        "leaders": "a/fd00::1,b/10.0.0.2",
        "pool-scoped-metadata": "/v1/services,discovery.k8s.io/v1/endpointslices",
        "interconnectivity": "true",
        "enable-leader-election": "true",
        "hubs": "a/fd00::1,b/10.0.0.2,c/10.0.0.3",
    }


def test_a_pool_may_name_relays() -> None:
    annotations = {"edgehub.io/relay": "https://10.0.0.9:10269"}
    pool = read_pool({"metadata": {"name": "p", "annotations": annotations}})
    assert leader_config(pool, HUBS, "ns")["data"]["relay"] == "https://10.0.0.9:10269"


def test_a_pool_with_marked_leaders_has_no_deputies() -> None:
    """An administrator marks the nodes that may serve the pool; in other pools any node may lead or be a deputy."""
    marked = NodePool("p", interconnected=True, strategy=MARK)
    assert not parse_pool_config(leader_config(marked, HUBS, "ns")["data"]).has_deputies
    assert parse_pool_config(
        leader_config(NodePool("p", interconnected=True), HUBS, "ns")["data"]
    ).has_deputies


def test_hubs_are_listed_only_in_pools_with_an_election() -> None:
    """Hubs open the peer port in no other pool."""
    found = parse_pool_config(leader_config(POOL, HUBS, "ns")["data"]).hubs
    assert [(each.node, each.address) for each in found] == [(each.node, each.address) for each in HUBS]
    assert "hubs" not in leader_config(NodePool("p"), HUBS, "ns")["data"]


def test_the_role_grants_nothing_without_pools() -> None:
    # A rule for ConfigMaps without names would apply to all of them.
    assert leader_hubs_role([], "ns")["rules"] == []


def test_the_role_names_each_config_map() -> None:
    [rule] = leader_hubs_role([NodePool("b"), NodePool("a")], "ns")["rules"]
    assert rule["resourceNames"] == ["leader-hub-a", "leader-hub-b"]


@pytest.mark.parametrize(
    ("path", "value", "different"),
    [
        (("metadata", "labels", "other"), "x", False),
        (("metadata", "resourceVersion"), "9", False),
        (("data", "leaders"), "", True),
        (("data", "more"), "x", True),
        (("data",), None, True),
        (("metadata", "labels"), None, True),
        (("metadata", "ownerReferences"), [{"uid": "other"}], True),
    ],
)
def test_changed_fields_of_an_object_are_a_difference(
    path: tuple[str, ...], value: Any, different: bool
) -> None:
    intended = leader_config(POOL, HUBS, "ns")
    live = copy.deepcopy(intended)
    *parents, last = path
    part = live
    for each in parents:
        part = part[each]
    part[last] = value
    assert differs(live, intended) is different


def test_a_missing_object_differs() -> None:
    assert differs(None, leader_hubs_role([], "ns"))
    assert not differs({"metadata": {}, "rules": None}, leader_hubs_role([], "ns"))
