"""The labels, annotations and taints that a pool puts on its nodes and removes from nodes that leave. Pure.

An annotation of the node records what the pool put there, in OpenYurt's format. The controller removes only what is in
the record, so attributes that others set stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from controllers.cluster.node_pools import NodePool
from controllers.cluster.nodes import Node
from controllers.runtime.unstructured import objects, parsed_note, text, texts
from kube.json_type import Json
from kube.requests.node_pools import POOL_LABEL

PREVIOUS = "nodepool.openyurt.io/previous-attributes"
"""The record: the node annotation that lists the labels, annotations and taints that come from the pool."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Labels, annotations, and taints by key and effect."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: dict[tuple[str, str], str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.taints)


def wanted_attributes(pool: NodePool | None) -> Attributes:
    """The attributes that a pool puts on its nodes, none without a pool. The pool label itself is never among them."""
    if pool is None:
        return Attributes()
    return Attributes(
        labels={key: value for key, value in pool.labels.items() if key != POOL_LABEL},
        annotations={key: value for key, value in pool.annotations.items() if key != PREVIOUS},
        taints=_taints(pool.taints),
    )


def node_patch(node: Node, wanted: Attributes) -> Json:
    """The merge patch that gives a node the wanted attributes; {} if it has them.

    The server answers 409 to an outdated patch. The pool's value replaces a different value of another client. A value
    that the node has already is not recorded, so it stays when the node leaves the pool. A recorded value that another
    client has changed since stays too.
    """
    put = parse_previous(node.annotations.get(PREVIOUS, ""))
    live_taints = _taints(node.taints)
    noted = Attributes(
        labels=_ours(wanted.labels, put.labels, node.labels),
        annotations=_ours(wanted.annotations, put.annotations, node.annotations),
        taints=_ours(wanted.taints, put.taints, live_taints),
    )
    labels = _changes(wanted.labels, put.labels, node.labels)
    annotations = _changes(wanted.annotations, put.annotations, node.annotations)
    note = format_previous(noted)
    if note != node.annotations.get(PREVIOUS):
        annotations[PREVIOUS] = note
    taint_changes = _changes(wanted.taints, put.taints, live_taints)
    patch: Json = {"metadata": {}}
    if labels:
        patch["metadata"]["labels"] = labels
    if annotations:
        patch["metadata"]["annotations"] = annotations
    if taint_changes:
        patch["spec"] = {"taints": _patched_taints(node.taints, taint_changes)}
    if patch == {"metadata": {}}:
        return {}
    patch["metadata"]["resourceVersion"] = node.version
    return patch


def parse_previous(note: str) -> Attributes:
    """Parse the record. An unreadable record counts as empty, so that nothing is removed by mistake."""
    parsed = parsed_note(note)
    return Attributes(
        texts(parsed.get("labels")), texts(parsed.get("annotations")), _taints(objects(parsed.get("taints")))
    )


def format_previous(attributes: Attributes) -> str | None:
    """The record as the annotation's value, None when it is empty."""
    if not attributes:
        return None
    taints = [
        {"effect": effect, "key": key, **({"value": value} if value else {})}
        for (key, effect), value in sorted(attributes.taints.items())
    ]
    noted = {"annotations": attributes.annotations, "labels": attributes.labels, "taints": taints}
    return json.dumps(noted, sort_keys=True, separators=(",", ":"))


def _taints(taints: tuple[Json, ...] | list[Json]) -> dict[tuple[str, str], str]:
    return {
        (text(taint.get("key")), text(taint.get("effect"))): text(taint.get("value"))
        for taint in taints
        if taint.get("key")
    }


def _ours[K](wanted: Mapping[K, str], put: Mapping[K, str], live: Mapping[K, str]) -> dict[K, str]:
    return {key: value for key, value in wanted.items() if key in put or live.get(key) != value}


def _changes[K](wanted: Mapping[K, str], put: Mapping[K, str], live: Mapping[K, str]) -> dict[K, str | None]:
    """Values to set; None removes a key."""
    away: dict[K, str | None] = {
        key: None for key, value in put.items() if key not in wanted and live.get(key) == value
    }
    return away | {key: value for key, value in wanted.items() if live.get(key) != value}


def _patched_taints(
    live: tuple[Json, ...], changes: Mapping[tuple[str, str], str | None]
) -> list[Json] | None:
    """The whole new list, because a merge patch replaces lists; None, which removes the field, when it is empty."""
    untouched = [taint for taint in live if (taint.get("key"), taint.get("effect")) not in changes]
    put = [
        {"key": key, "effect": effect, **({"value": value} if value else {})}
        for (key, effect), value in sorted(changes.items())
        if value is not None
    ]
    return untouched + put or None
