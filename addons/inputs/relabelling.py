"""What filters ask about the labels of nodes: which keys a change touches, and what the manager's objects hold."""

from __future__ import annotations

from collections.abc import Mapping

from addons.inputs.input_sources import InputKind
from kube.requests.node_labels import read_labels
from kube.store.projection import InputKey
from kube.store.store import Item

MANY_LABELS = 2_000
"""Of a node before and after a change. Its kubelet may write a hundred thousand, which all hubs of the cluster read."""


def of_labels(name: str, was: Mapping[str, str] | None, now: Mapping[str, str] | None) -> set[InputKey]:
    """The keys of the labels that changed, and the node's own key when the node came or went.

    Of a node with very many labels it is the node's own key alone: whoever asked for a label asked for the node.
    """
    before, after = was or {}, now or {}
    if len(before) + len(after) > MANY_LABELS:
        return {(InputKind.NODE, name)} if before != after or None in (was, now) else set()
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    touched: set[InputKey] = {(InputKind.NODE, name, key) for key in keys}
    if keys:
        touched.add((InputKind.NODE, name, None))
    if was is None or now is None:
        touched.add((InputKind.NODE, name))
    return touched


def labels_in(item: Item) -> dict[str, Mapping[str, str]]:
    """The labels of the nodes that one of the manager's objects has, by their names."""
    by_node: dict[str, Mapping[str, str]] = {}
    for group in item.decode().fields.children("groups"):
        labels = group.mapping("labels")
        by_node.update({name: read_labels(name, labels) for name in group.texts("nodes")})
    return by_node
