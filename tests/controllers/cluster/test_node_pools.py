"""The parsing of NodePools with any content, and the written conditions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controllers.cluster.node_pools import PoolScopedResource, read_pool
from kube.json_type import Json
from kube.peers import LeaderHub

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    "interConnectivity",
    "leaderNodeLabelSelector",
    "leaderReplicas",
    "poolScopeMetadata",
    "labels",
    "annotations",
    "taints",
    "nodes",
    "leaderEndpoints",
    "conditions",
    "leaderNum",
]


def test_facts_of_a_pool_are_read() -> None:
    pool = read_pool(
        {
            "metadata": {"name": "p", "uid": "u", "generation": 3, "resourceVersion": "7"},
            "spec": {
                "interConnectivity": True,
                "leaderElectionStrategy": "mark",
                "leaderNodeLabelSelector": {"big": "yes"},
                "leaderReplicas": 2,
                "poolScopeMetadata": [{"group": "", "version": "v1", "resource": "endpoints"}],
            },
            "status": {
                "nodes": ["a", "b"],
                "readyNodeNum": 1,
                "unreadyNodeNum": 1,
                "leaderEndpoints": [{"nodeName": "a", "address": "10.0.0.1"}],
                "leaderNum": 1,
            },
        }
    )
    assert pool.elects
    assert (pool.strategy, pool.selector, pool.replicas) == ("mark", {"big": "yes"}, 2)
    assert pool.pool_scope == (PoolScopedResource("", "v1", "endpoints"),)
    assert (pool.nodes, pool.ready, pool.unready) == (("a", "b"), 1, 1)
    assert pool.leaders == (LeaderHub("a", "10.0.0.1"),)
    assert pool.reference.owner["uid"] == pool.reference.uid == "u"


def test_only_resources_in_the_allow_list_are_shared() -> None:
    entries = [
        {"group": "", "version": "v1", "resource": "pods"},
        {"group": "", "version": "v1", "resource": "configmaps"},
        {"group": "", "version": "v1", "resource": "nodes"},
        {"group": "discovery.k8s.io", "version": "v1", "resource": "services"},
        {"group": "apps", "version": "v1", "resource": "endpoints"},
        {"group": "", "version": "v1,/v1/secrets", "resource": "services"},
        {"group": "", "version": "v1", "resource": "secrets"},
        {"group": "", "version": "v1", "resource": "*"},
        {"group": "*", "version": "v1", "resource": "pods"},
        {"group": "", "version": "v1", "resource": "pods/exec"},
        {"group": "", "version": "", "resource": "services"},
        {"group": "", "version": "v1", "resource": "endpoints"},
        "garbage",
    ]
    pool = read_pool({"spec": {"poolScopeMetadata": entries}})
    assert pool.pool_scope == (PoolScopedResource("", "v1", "endpoints"),)


def test_a_pool_is_referred_to_in_the_version_in_which_it_was_read() -> None:
    pool = read_pool({"apiVersion": "apps.openyurt.io/v1beta1", "metadata": {"name": "p"}})
    assert pool.reference.api_version == pool.reference.owner["apiVersion"] == "apps.openyurt.io/v1beta1"
    assert read_pool({}).reference.api_version == "apps.openyurt.io/v1beta2"


def test_a_leader_without_an_ip_address_is_ignored() -> None:
    """A client that may write the status must not put anything but addresses into the hubs' ConfigMap."""
    addresses = ["10.0.0.9,node-1/6.6.6.6", "10.0.0.1", "fe80::1%a,b/c", "", "FD00::0001"]
    status = {"leaderEndpoints": [{"nodeName": "n", "address": each} for each in addresses]}
    pool = read_pool({"metadata": {"name": "p"}, "status": status})
    assert [each.address for each in pool.leaders] == ["10.0.0.1", "fd00::1"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_malformed_fields_are_read_as_absent(spec: Json, status: Json) -> None:
    pool = read_pool({"metadata": {"name": "p"}, "spec": spec, "status": status})
    assert pool.name == "p"
    assert pool.replicas >= 1
