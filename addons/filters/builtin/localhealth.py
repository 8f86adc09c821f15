"""Removes the endpoints on nodes that the hub's local health source calls unhealthy (SuperEdge's service autonomy
enhancement, with edge-health).

Needs: the local health of each endpoint's node. Changes: EndpointSlices (v1, v1beta1) and Endpoints, of services with
and without topology, ready and not ready addresses alike; an emptied object is still sent. default/kubernetes is not
filtered. An endpoint is kept if it names no node, or a node that the source does not report: SuperEdge loses every
manually created endpoint as soon as it is switched on. Nothing is filtered while the health source has not answered,
or its last answer is too old; nor is an object larger than MAX_ENDPOINTS.

Part of the chain only if the hub has the option hub_local_health.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from addons.filters.builtin.kubernetesservice import is_kubernetes
from addons.filters.builtin.pruning import is_too_large, prune
from addons.filters.builtin.topology import NodeRule
from addons.filters.filter import ENDPOINT_SLICES, ENDPOINTS, LIST_AND_WATCH
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject


@dataclass(frozen=True)
class LocalHealth:
    name = "localhealth"
    resources = frozenset({ENDPOINTS, ENDPOINT_SLICES})
    components = frozenset({"kube-proxy", "coredns", "nginx-ingress-controller"})
    verbs = LIST_AND_WATCH
    reasons = frozenset({"too-many-endpoints", "kubernetes-service", "all-healthy", "unhealthy-node"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if is_too_large(obj):
            return kept("too-many-endpoints")
        if is_kubernetes(obj):
            return kept("kubernetes-service")
        is_healthy = cache(inputs.is_healthy)

        def allows(node: str) -> bool:
            return not node or is_healthy(node)

        def explain(node: str) -> str:
            if not node:
                return "endpoint that names no node"
            return f"node {node} is {'not ' if is_healthy(node) else ''}called unhealthy by local health"

        rule = NodeRule("unhealthy-node", allows, explain)
        return changed("unhealthy-node") if prune(obj, rule, note) else kept("all-healthy")
