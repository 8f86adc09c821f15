"""Keeps of an Endpoints object the addresses on nodes of this node's pool, whatever its Service is annotated
with.

Needs: the Service of the same name (only that it exists), this node's pool and that pool's nodes. Changes:
Endpoints, ready and not ready addresses; an address that names no node goes; an emptied object is still sent.
When the Service, the pool of this node or the NodePool is missing, nothing is filtered (as in YurtHub); nor
is an object larger than MAX_ENDPOINTS.

No component is bound by default: YurtHub binds it in the ConfigMap only. Releases of YurtHub
before its servicetopology read Endpoints bound nginx-ingress-controller, which now has servicetopology; the
key `endpoints` or `filter_endpoints` of the rules ConfigMap binds it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from addons.filters.builtin.pruning import is_too_large, prune
from addons.filters.builtin.topology import in_this_pool
from addons.filters.filter import ENDPOINTS, LIST_AND_WATCH
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject


@dataclass(frozen=True)
class EndpointsInPool:
    name = "endpoints"
    resources = frozenset({ENDPOINTS})
    components = frozenset[str]()
    verbs = LIST_AND_WATCH
    reasons = frozenset({"too-many-endpoints", "no-service", "no-pool", "no-such-pool", "same-pool"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if is_too_large(obj):
            return kept("too-many-endpoints")
        if inputs.service(obj.namespace, obj.name) is None:
            return kept("no-service")
        rule = in_this_pool(inputs)
        if isinstance(rule, str):
            return kept(rule)
        return changed(rule.reason) if prune(obj, rule, note) else kept(rule.reason)
