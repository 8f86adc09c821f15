"""Gives the Service default/kubernetes the hub's address and port, so that pods which kubelet starts find the hub.

Needs: the hub's address. Changes: clusterIP and clusterIPs (openyurt#2173), one for each address family that both the
Service and the hub have, the families if fewer remain, and the port named https. If the hub has no address of the
Service's families, nothing changes: pods continue to reach the cloud directly.
"""

from __future__ import annotations

from dataclasses import dataclass

from addons.filters.builtin.kubernetesservice import (
    https_port,
    is_kubernetes,
    say_address,
    write_port,
    write_texts,
)
from addons.filters.filter import LIST_AND_WATCH, SERVICES
from addons.filters.inputs import Inputs, family_of
from addons.filters.verdict import Note, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject
from kube.wire.fields import Fields


@dataclass(frozen=True)
class MasterService:
    name = "masterservice"
    resources = frozenset({SERVICES})
    components = frozenset({"kubelet"})
    verbs = LIST_AND_WATCH
    reasons = frozenset({"other-service", "no-hub-address", "hub-address"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if not is_kubernetes(obj):
            return kept("other-service")
        hub, spec = inputs.hub, obj.fields.child("spec")
        wanted = [(family, host) for family in _families(spec) if (host := hub.host_of(family))]
        if not wanted:
            return kept("no-hub-address")
        hosts = [host for _, host in wanted]
        differs = write_texts(spec, "clusterIPs", hosts)
        if spec.text("clusterIP") != hosts[0]:
            spec.set("clusterIP", hosts[0])
            differs = True
        if spec.has("ipFamilies"):
            # The lists correspond by position: a family left in one list would get the other family's address.
            differs |= write_texts(spec, "ipFamilies", [family for family, _ in wanted])
        port = https_port(spec)
        if port is not None:
            differs |= write_port(port, hub.port)
        say_address(note, obj, differs, f"{', '.join(hosts)} port {hub.port}")
        return changed("hub-address") if differs else kept("hub-address")


def _families(spec: Fields) -> list[str]:
    """Return the families of the Service, the main one first; derived from its addresses if the field is missing
    (before Kubernetes 1.20)."""
    families = spec.texts("ipFamilies")
    if families:
        return families
    return [family_of(ip) for ip in spec.texts("clusterIPs") or [spec.text("clusterIP")] if ip]
