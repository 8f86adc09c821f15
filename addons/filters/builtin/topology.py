"""A Service's topology annotations, and the nodes that satisfy them. Pure; all endpoint filters use it.

There are two annotations: OpenYurt's `openyurt.io/topologyKeys`, one plain value, and SuperEdge's `topologyKeys`, a
JSON array of node label keys. Where a Service has both, both must be satisfied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from addons.filters.inputs import Inputs
from kube.requests.node_labels import ANY_ENDPOINT, parse_topology_keys
from kube.requests.node_pools import POOL_LABEL

SCOPE_ANNOTATION = "openyurt.io/topologyKeys"
KEYS_ANNOTATION = "topologyKeys"


class Order(StrEnum):
    """The meaning of several keys: any of them, as in SuperEdge, or the first with a ready endpoint, as in Kubernetes'
    former spec.topologyKeys."""

    ANY = "any"
    PREFERRED = "preferred"


class Reach(StrEnum):
    """The values of OpenYurt's annotation: how far traffic may go."""

    EVERYWHERE = ""
    NODE = "node"
    POOL = "pool"


_REACHES = {
    "kubernetes.io/hostname": Reach.NODE,
    "openyurt.io/nodepool": Reach.POOL,
    "kubernetes.io/zone": Reach.POOL,  # OpenYurt's older value for the pool, not Kubernetes' zone label
}


class Topology(NamedTuple):
    """Both annotations, parsed. `doubts` names the annotations that have no usable value, as reasons of a verdict."""

    reach: Reach = Reach.EVERYWHERE
    keys: tuple[str, ...] = ()
    order: Order = Order.ANY
    doubts: tuple[str, ...] = ()


def parse_topology(annotations: Mapping[str, str], order: Order = Order.ANY) -> Topology:
    """Parse both annotations. Never raises: an unknown value restricts nothing, and `doubts` names it.

    `order` is the hub's option; a list that ends with `"*"` is always ordered.
    """
    doubts = []
    scope = annotations.get(SCOPE_ANNOTATION)
    reach = Reach.EVERYWHERE if scope is None else _REACHES.get(scope, Reach.EVERYWHERE)
    if scope is not None and reach is Reach.EVERYWHERE:
        doubts.append("unknown-topology")
    text = annotations.get(KEYS_ANNOTATION)
    keys = () if text is None else parse_topology_keys(text)
    if keys is None:
        doubts.append("bad-topology-keys")
        keys = ()
    if keys and keys[-1] == ANY_ENDPOINT:
        order = Order.PREFERRED
    return Topology(reach, keys, order, tuple(doubts))


LabelsOf = Callable[[str], Mapping[str, str] | None]
"""The labels of a node by its name; None if the node is not known. Rules call it often, so it should cache."""


class NodeRule(NamedTuple):
    """Decides about an endpoint by the name of its node ("" if it names none)."""

    reason: str
    allows: Callable[[str], bool]
    explain: Callable[[str], str]


def on_this_node(inputs: Inputs) -> NodeRule:
    own = inputs.node_name

    def explain(node: str) -> str:
        return f"{_named(node)}, this node is {own}"

    return NodeRule("same-node", own.__eq__, explain)


def in_this_pool(inputs: Inputs) -> NodeRule | str:
    """Return a rule, or the reason why there is none: "no-pool" (this node is in no pool) or "no-such-pool"."""
    pool = inputs.own_pool()
    if not pool:
        return "no-pool"
    members = inputs.pool_nodes(pool)
    if members is None:
        return "no-such-pool"

    def explain(node: str) -> str:
        if not node:
            return _named(node)
        if node in members:
            return f"node {node} is in node pool {pool}, as this node is"
        labelled = (inputs.node_labels(node) or {}).get(POOL_LABEL)
        if labelled is None or labelled == pool:
            return f"node {node} is not among the nodes of node pool {pool}, this node's"
        return f"node {node} has {POOL_LABEL}={labelled}, this node {pool}"

    return NodeRule("same-pool", members.__contains__, explain)


def sharing_a_key(keys: tuple[str, ...], own_name: str, labels_of: LabelsOf) -> NodeRule:
    """Return the rule that allows nodes with the same value as this node for one of the label keys. Strict, as in
    SuperEdge: nothing is allowed while this node is unknown ("no-own-node") or has none of the keys ("no-own-label").
    """
    own = labels_of(own_name)
    wanted = {key: own[key] for key in keys if key in own} if own is not None else {}

    @cache
    def allows(node: str) -> bool:
        if not wanted or not node:
            return False
        labels = labels_of(node)
        return labels is not None and any(labels.get(key) == value for key, value in wanted.items())

    def explain(node: str) -> str:
        if own is None:
            return f"this node {own_name} is not known"
        if not node:
            return _named(node)
        labels = labels_of(node)
        if labels is None:
            return f"node {node} is not known"
        return "; ".join(
            f"node {node} has {_labelled(labels, key)}, this node {_labelled(own, key)}" for key in keys
        )

    reason = "no-own-node" if own is None else "same-key" if wanted else "no-own-label"
    return NodeRule(reason, allows, explain)


def by_preference(
    keys: tuple[str, ...], ready: Callable[[], Iterable[str]], own_name: str, labels_of: LabelsOf
) -> NodeRule:
    """Return the rule of the first key for which a node of `ready`, the nodes with a ready endpoint, shares this node's
    value; `"*"` allows any endpoint. If no key finds one, nothing is allowed, as in Kubernetes' former topologyKeys."""
    for key in keys:
        if key == ANY_ENDPOINT:
            return NodeRule(
                "any-endpoint", lambda _node: True, lambda node: f"{_named(node)}; any endpoint may serve"
            )
        rule = sharing_a_key((key,), own_name, labels_of)
        if rule.reason == "same-key" and any(map(rule.allows, ready())):
            return NodeRule("preferred-key", rule.allows, rule.explain)
    tried = ", ".join(keys)
    return NodeRule(
        "no-preferred",
        lambda _node: False,
        lambda node: f"no ready endpoint shares any of {tried} with this node",
    )


def both(first: NodeRule, second: NodeRule) -> NodeRule:
    return NodeRule(
        "both-topologies",
        lambda node: first.allows(node) and second.allows(node),
        lambda node: f"{first.explain(node)}; {second.explain(node)}",
    )


def _named(node: str) -> str:
    return f"endpoint of node {node}" if node else "endpoint that names no node"


def _labelled(labels: Mapping[str, str], key: str) -> str:
    return f"{key}={labels[key]}" if key in labels else f"no {key}"
