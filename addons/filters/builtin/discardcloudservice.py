"""Hides from the edge the Services that only the cloud can serve: load balancers and a few by name, as YurtHub does.

Needs nothing but the object. Drops, in this order of decision:
1. any Service annotated svc.openyurt.io/discard "true" (OpenYurt's newer, opt-in annotation);
2. not one annotated openyurt.io/skip-discard "true" or svc.openyurt.io/discard "false" (either generation's
  way to keep it);
3. type LoadBalancer; 4. the named cloud-only Services.
"""

from __future__ import annotations

from dataclasses import dataclass

from addons.filters.filter import LIST_AND_WATCH, SERVICES
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, dropped, ignore_note, kept
from kube.wire.api_objects import ApiObject

DISCARD = "svc.openyurt.io/discard"
SKIP_DISCARD = "openyurt.io/skip-discard"

CLOUD_ONLY = frozenset({("kube-system", "x-tunnel-server-internal-svc")})
"""The tunnel server's Service: its endpoints are reachable in the cloud only."""


@dataclass(frozen=True)
class DiscardCloudService:
    name = "discardcloudservice"
    resources = frozenset({SERVICES})
    components = frozenset({"kube-proxy"})
    verbs = LIST_AND_WATCH
    reasons = frozenset(
        {"discard-annotation", "skip-annotation", "load-balancer", "cloud-only", "edge-service"}
    )

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        verdict, why = _judge(obj)
        if note is not ignore_note:
            note(f"service {obj.namespace}/{obj.name}", verdict.outcome, why)
        return verdict


def _judge(obj: ApiObject) -> tuple[Verdict, str]:
    annotations = obj.annotations
    if annotations.get(DISCARD) == "true":
        return dropped("discard-annotation"), f"it has {DISCARD}=true"
    for key, value in ((SKIP_DISCARD, "true"), (DISCARD, "false")):
        if annotations.get(key) == value:
            return kept("skip-annotation"), f"it has {key}={value}"
    kind = obj.fields.child("spec").text("type")
    if kind == "LoadBalancer":
        return dropped(
            "load-balancer"
        ), f"its type is LoadBalancer, without {SKIP_DISCARD}=true or {DISCARD}=false"
    if (obj.namespace, obj.name) in CLOUD_ONLY:
        return dropped("cloud-only"), "it is a Service that only the cloud can serve"
    return kept("edge-service"), f"its type is {kind or 'not given'}"
