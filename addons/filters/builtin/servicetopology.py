"""Keeps only the endpoints of a Service that its topology annotations let this node reach.

Needs: the Service, and, by its annotations, this node's pool and that pool's nodes, or the labels of this node and of
the endpoints' nodes. Changes: EndpointSlices (v1, v1beta1) and Endpoints, ready and not ready addresses alike; an
endpoint that names no node is removed; an emptied object is still sent, because kube-proxy must see it
(openyurt#1028).

When something is missing, as in the documents of OpenYurt and SuperEdge:
- no service-name label, no Service, no annotation, an unknown value, JSON without keys, too many keys, or an object
  larger than MAX_ENDPOINTS: the annotation has no effect;
- pool scope, and this node is in no pool, its pool does not exist, or the pool's status is not written yet: the
  annotation has no effect. A pool without nodes is known: only this node's own endpoints remain;
- label keys, and this node is unknown or has none of the keys: every endpoint is removed; so is an endpoint whose node
  is unknown.

With both annotations an endpoint must satisfy both; if one restricts nothing, the verdict names that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from addons.filters.builtin.pruning import SLICE, is_too_large, prune, ready_nodes_of, service_of
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
from addons.filters.filter import ENDPOINT_SLICES, ENDPOINTS, LIST_AND_WATCH
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Outcome, Verdict, changed, ignore_note, kept
from kube.requests.node_labels import MAX_KEYS
from kube.wire.api_objects import ApiObject


@dataclass(frozen=True)
class ServiceTopology:
    """`order` is the hub's option for the meaning of several SuperEdge keys."""

    order: Order = Order.ANY

    name = "servicetopology"
    resources = frozenset({ENDPOINTS, ENDPOINT_SLICES})
    components = frozenset({"kube-proxy", "coredns", "nginx-ingress-controller"})
    verbs = LIST_AND_WATCH
    reasons = frozenset(
        {
            *("too-many-endpoints", "no-service-label", "no-service", "no-topology"),
            *("unknown-topology", "bad-topology-keys", "no-pool", "no-such-pool"),
            *("same-node", "same-pool", "same-key", "no-own-node", "no-own-label"),
            *("preferred-key", "any-endpoint", "no-preferred", "both-topologies"),
        }
    )

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if is_too_large(obj):
            return kept("too-many-endpoints")
        service = service_of(obj)
        facts = inputs.service(obj.namespace, service) if service else None
        if facts is None:
            unfiltered = "no-service" if service else "no-service-label"
            note(f"{obj.kind} {obj.namespace}/{obj.name}", Outcome.KEPT, _UNFILTERED[unfiltered])
            return kept(unfiltered)
        rule, doubts = _rule_for(parse_topology(facts.annotations, self.order), obj, service, inputs)
        if rule is None and not doubts:
            doubts = ("no-topology",)
        for doubt in doubts:
            note(f"service {obj.namespace}/{service}", Outcome.KEPT, _UNFILTERED[doubt])
        if rule is None:
            return kept(doubts[0])
        removed = prune(obj, rule, note)
        reason = doubts[0] if doubts else rule.reason
        return changed(reason) if removed else kept(reason)


_UNFILTERED = {
    "no-service-label": "it has no label kubernetes.io/service-name",
    "no-service": "its Service is not known",
    "no-topology": "it has no topology annotation",
    "unknown-topology": "the value of its openyurt.io/topologyKeys is not known and restricts nothing",
    "bad-topology-keys": f"its topologyKeys is no JSON array of at most {MAX_KEYS} label keys and restricts nothing",
    "no-pool": "it asks for this node's pool, and this node is in none",
    "no-such-pool": "it asks for this node's pool, and there is no such NodePool, or its status is not written yet",
}
"""The text for each reason why a Service, or a part of its topology, restricts nothing."""


def _rule_for(
    topology: Topology, obj: ApiObject, service: str, inputs: Inputs
) -> tuple[NodeRule | None, tuple[str, ...]]:
    """Return the rule that the topology means on this node, None if it restricts nothing; and the reason why a part of
    it does not restrict."""
    doubts = topology.doubts
    reach: NodeRule | None = None
    if topology.reach is Reach.NODE:
        reach = on_this_node(inputs)
    elif topology.reach is Reach.POOL:
        answer = in_this_pool(inputs)
        if isinstance(answer, NodeRule):
            reach = answer
        else:
            doubts = (answer, *doubts)
    if not topology.keys:
        return reach, doubts
    labels_of = cache(inputs.node_labels)
    if topology.order is Order.ANY:
        keys = sharing_a_key(topology.keys, inputs.node_name, labels_of)
    else:
        ready = _ready_nodes(obj, service, inputs, reach)
        keys = by_preference(topology.keys, ready, inputs.node_name, labels_of)
    return (keys if reach is None else both(reach, keys)), doubts


def _ready_nodes(
    obj: ApiObject, service: str, inputs: Inputs, reach: NodeRule | None
) -> Callable[[], list[str]]:
    """Return the nodes among which a preferred key must find one: those with a ready endpoint in any slice of the
    Service that OpenYurt's annotation and local health permit. They are sorted, so that the filter asks for the same
    inputs each time."""

    @cache
    def ready() -> list[str]:
        of_nodes = ready_nodes_of(obj)
        if obj.kind == SLICE:
            of_nodes |= (
                inputs.ready_nodes(obj.namespace, service, obj.fields.text("addressType")) or frozenset()
            )
        allowed = {node for node in of_nodes if reach is None or reach.allows(node)}
        return sorted(node for node in allowed if inputs.is_healthy(node))

    return ready
