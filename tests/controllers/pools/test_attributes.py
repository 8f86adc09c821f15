"""Attributes that a pool sets and removes on a node, as properties of single steps and sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cluster.kinds import Node
from controllers.cluster.node_pools import NodePool
from controllers.pools import (
    PREVIOUS,
    Attributes,
    format_previous,
    node_patch,
    parse_previous,
    wanted_attributes,
)
from kube.requests.node_pools import POOL_LABEL

KEYS = st.sampled_from(["a", "b", "c"])
TEXTS = st.dictionaries(KEYS, st.sampled_from(["1", "2"]))
TAINTS = st.dictionaries(
    st.tuples(KEYS, st.sampled_from(["NoSchedule", "NoExecute"])), st.sampled_from(["", "x"])
)
ATTRIBUTES = st.builds(Attributes, TEXTS, TEXTS, TAINTS)


def patched(node: Node, patch: dict[str, Any]) -> Node:
    """Return the node after a merge patch, as the server applies it."""

    def merged(old: dict[str, str], change: dict[str, str | None]) -> dict[str, str]:
        return {key: value for key, value in {**old, **change}.items() if value is not None}

    meta = patch.get("metadata", {})
    spec = patch.get("spec", {})
    return replace(
        node,
        labels=merged(node.labels, meta.get("labels", {})),
        annotations=merged(node.annotations, meta.get("annotations", {})),
        taints=tuple(spec["taints"] or ()) if "taints" in spec else node.taints,
    )


def as_node(own: Attributes) -> Node:
    taints = tuple(
        {"key": key, "effect": effect, "value": value} for (key, effect), value in own.taints.items()
    )
    return Node("n", labels=own.labels, annotations=own.annotations, taints=taints, version="1")


def taints_of(node: Node) -> dict[tuple[str, str], str]:
    return {(each["key"], each["effect"]): each.get("value", "") for each in node.taints}


@given(ATTRIBUTES, st.lists(ATTRIBUTES, min_size=1, max_size=4))
def test_a_node_has_the_attributes_of_its_last_pool(own: Attributes, pools: list[Attributes]) -> None:
    node = as_node(own)
    for wanted in pools:
        node = patched(node, node_patch(node, wanted))
        assert wanted.labels.items() <= node.labels.items()
        assert wanted.annotations.items() <= node.annotations.items()
        assert wanted.taints.items() <= taints_of(node).items()
        assert node_patch(node, wanted) == {}


@given(ATTRIBUTES, st.lists(ATTRIBUTES, max_size=4))
def test_other_attributes_of_a_node_stay_and_those_of_pools_are_removed(
    own: Attributes, pools: list[Attributes]
) -> None:
    node = as_node(own)
    for wanted in [*pools, Attributes()]:
        node = patched(node, node_patch(node, wanted))
    named = {key for wanted in pools for key in wanted.labels}
    assert {key: value for key, value in node.labels.items() if key not in named} == {
        key: value for key, value in own.labels.items() if key not in named
    }
    # Only attributes of the node itself or of its last pool remain.
    assert node.labels.keys() <= own.labels.keys()
    assert node.annotations.keys() <= own.annotations.keys()
    assert taints_of(node).keys() <= own.taints.keys()
    assert PREVIOUS not in node.annotations


def test_an_attribute_changed_on_the_node_stays() -> None:
    node = as_node(Attributes())
    joined = patched(node, node_patch(node, Attributes(labels={"a": "1"})))
    changed = replace(joined, labels={"a": "2"})
    assert patched(changed, node_patch(changed, Attributes())).labels == {"a": "2"}


def test_a_pool_cannot_set_the_pool_label() -> None:
    pool = NodePool("p", labels={POOL_LABEL: "q", "a": "1"}, annotations={PREVIOUS: "x"})
    assert wanted_attributes(pool) == Attributes(labels={"a": "1"})
    assert wanted_attributes(None) == Attributes()


def test_the_record_on_a_node_has_openyurts_format() -> None:
    attributes = Attributes({"l": "1"}, {"a": "2"}, {("t", "NoSchedule"): ""})
    assert format_previous(attributes) == (
        '{"annotations":{"a":"2"},"labels":{"l":"1"},"taints":[{"effect":"NoSchedule","key":"t"}]}'
    )


@pytest.mark.parametrize("note", ["{", "[]", '"x"', '{"labels":[1]}', '{"taints":{"a":1}}', "x" * 300_000])
def test_a_malformed_record_is_ignored(note: str) -> None:
    assert parse_previous(note) == Attributes()
