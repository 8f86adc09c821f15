"""The two topology annotations of a Service, and the nodes that satisfy them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.topology import (
    NodeRule,
    Order,
    Reach,
    Topology,
    both,
    by_preference,
    in_this_pool,
    on_this_node,
    parse_topology,
    sharing_a_key,
)
from kube.requests.node_labels import MAX_KEYS, MAX_KEYS_TEXT
from kube.requests.node_pools import POOL_LABEL
from tests.addons.filters.support.samples import World, pooled_world

MOST_KEYS = tuple(f"k{number}" for number in range(MAX_KEYS))
OPENYURT, SUPEREDGE = "openyurt.io/topologyKeys", "topologyKeys"


@pytest.mark.parametrize(
    ("annotations", "topology"),
    [
        ({}, Topology()),
        ({"other": "x"}, Topology()),
        ({OPENYURT: "kubernetes.io/hostname"}, Topology(Reach.NODE)),
        ({OPENYURT: "openyurt.io/nodepool"}, Topology(Reach.POOL)),
        ({OPENYURT: "kubernetes.io/zone"}, Topology(Reach.POOL)),
        # Not values of this annotation: Kubernetes' own zone label, a list, other spellings.
        *(
            ({OPENYURT: annotation}, Topology(doubts=("unknown-topology",)))
            for annotation in (
                "",
                "topology.kubernetes.io/zone",
                "kubernetes.io/hostname,openyurt.io/nodepool",
                "Zone",
            )
        ),
        ({SUPEREDGE: '["zone1"]'}, Topology(keys=("zone1",))),
        ({SUPEREDGE: '["a", "b"]'}, Topology(keys=("a", "b"))),
        ({SUPEREDGE: "[]"}, Topology()),
        ({SUPEREDGE: "null"}, Topology()),
        *(
            ({SUPEREDGE: text}, Topology(doubts=("bad-topology-keys",)))
            for text in (
                *("", "zone1", '"zone1"', '{"zone1": 1}', "[1]", '["a", null]', '["a"', "[" * 100_000),
                *('["no key"]', '[""]', '["*", "a=b", "*"]', '["a"' + " " * MAX_KEYS_TEXT + "]"),
                json.dumps([f"k{number}" for number in range(MAX_KEYS + 1)]),
            )
        ),
        ({SUPEREDGE: '["a", "*"]'}, Topology(keys=("a", "*"), order=Order.PREFERRED)),
        ({SUPEREDGE: '["*", "a"]'}, Topology(keys=("*", "a"))),
        # Repeated keys once made one slice take seconds: each repetition was compared on each node.
        (
            {SUPEREDGE: json.dumps(["a", *["b"] * 500, "*"])},
            Topology(keys=("a", "b", "*"), order=Order.PREFERRED),
        ),
        ({SUPEREDGE: json.dumps(MOST_KEYS)}, Topology(keys=MOST_KEYS)),
        ({OPENYURT: "openyurt.io/nodepool", SUPEREDGE: '["a"]'}, Topology(Reach.POOL, ("a",))),
        ({OPENYURT: "?", SUPEREDGE: "?"}, Topology(doubts=("unknown-topology", "bad-topology-keys"))),
    ],
    ids=lambda value: str(value)[:60],
)
def test_topology_annotations_are_parsed(annotations: Mapping[str, str], topology: Topology) -> None:
    assert parse_topology(annotations) == topology


def test_the_option_sets_the_order_of_several_topology_keys() -> None:
    ordered = parse_topology({SUPEREDGE: '["a", "b"]'}, Order.PREFERRED)
    assert ordered == Topology(keys=("a", "b"), order=Order.PREFERRED)


@given(st.dictionaries(st.sampled_from([OPENYURT, SUPEREDGE, "x"]), st.text()))
def test_any_annotation_is_parsed_without_an_exception(annotations: dict[str, str]) -> None:
    topology = parse_topology(annotations)
    assert set(topology.doubts) <= {"unknown-topology", "bad-topology-keys"}


def test_the_reason_says_if_a_node_is_this_node() -> None:
    rule = on_this_node(World(node_name="n1"))
    assert rule.explain("n2") == "endpoint of node n2, this node is n1"
    assert rule.explain("") == "endpoint that names no node, this node is n1"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("n2", "node n2 is in node pool p1, as this node is"),
        ("n3", f"node n3 has {POOL_LABEL}=p2, this node p1"),
        ("n4", "node n4 is not among the nodes of node pool p1, this node's"),
        ("gone", "node gone is not among the nodes of node pool p1, this node's"),
        ("", "endpoint that names no node"),
    ],
)
def test_the_reason_says_if_a_node_is_in_this_pool(node: str, why: str) -> None:
    rule = in_this_pool(pooled_world({}))
    assert isinstance(rule, NodeRule)
    assert rule.explain(node) == why


def test_a_pool_label_is_ignored_until_the_pools_status_names_the_node() -> None:
    world = pooled_world({})
    world.nodes["new"] = {POOL_LABEL: "p1"}
    rule = in_this_pool(world)
    assert isinstance(rule, NodeRule)
    assert not rule.allows("new")
    assert rule.explain("new") == "node new is not among the nodes of node pool p1, this node's"


# Labels of nodes by name: n1 is this node, and SuperEdge's topologyKeys name the keys that must agree.
NODES: dict[str, dict[str, str]] = {
    "n1": {"z": "1", "y": "a"},
    "n2": {"z": "1"},
    "n3": {"z": "2", "y": "a"},
    "n4": {"z": "", "y": "b"},
}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("n2", "node n2 has z=1, this node z=1; node n2 has no y, this node y=a"),
        ("n3", "node n3 has z=2, this node z=1; node n3 has y=a, this node y=a"),
        ("gone", "node gone is not known"),
        ("", "endpoint that names no node"),
    ],
)
def test_the_reason_says_if_a_node_shares_a_topology_key(node: str, why: str) -> None:
    assert sharing_a_key(("z", "y"), "n1", NODES.get).explain(node) == why


def test_the_reason_names_an_unknown_own_node() -> None:
    assert sharing_a_key(("z",), "n9", NODES.get).explain("n2") == "this node n9 is not known"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: by_preference(("*",), list, "n1", NODES.get), "endpoint of node n3; any endpoint may serve"),
        (
            lambda: by_preference(("z", "y"), list, "n1", NODES.get),
            "no ready endpoint shares any of z, y with this node",
        ),
        (
            lambda: both(on_this_node(World()), sharing_a_key(("y",), "n1", NODES.get)),
            "endpoint of node n3, this node is n1; node n3 has y=a, this node y=a",
        ),
    ],
)
def test_the_reason_names_the_rule_that_decides(make: Callable[[], NodeRule], why: str) -> None:
    assert make().explain("n3") == why
