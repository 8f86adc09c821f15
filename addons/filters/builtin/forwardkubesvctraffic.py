"""Points the slices of default/kubernetes at the hub, so that kube-proxy leads clients of that ClusterIP to the hub.

No component has it by default, unlike at YurtHub: the cluster certifies no node for the names of that Service, so pods
that verify by their ca.crt would refuse the hub by the ClusterIP and by `kubernetes.default.svc`. Needs: the hub's
address. Changes: each slice of that Service with an address type for which the hub has an address: its only endpoint
becomes the hub's address, ready, and the port named https becomes the hub's. A slice of another address type, or
without a port https, is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from addons.filters.builtin.kubernetesservice import (
    https_port,
    is_kubernetes,
    say_address,
    write_port,
)
from addons.filters.filter import ENDPOINT_SLICES, LIST_AND_WATCH
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject
from kube.wire.fields import Fields


@dataclass(frozen=True)
class ForwardKubeSvcTraffic:
    name = "forwardkubesvctraffic"
    resources = frozenset({ENDPOINT_SLICES})
    components = frozenset[str]()
    verbs = LIST_AND_WATCH
    reasons = frozenset({"other-slice", "no-hub-address", "no-https-port", "hub-address"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if not is_kubernetes(obj):
            return kept("other-slice")
        hub = inputs.hub
        host = hub.host_of(obj.fields.text("addressType"))
        if host is None:
            return kept("no-hub-address")
        port = https_port(obj.fields)
        if port is None:
            return kept("no-https-port")
        differs = write_port(port, hub.port)
        if not _is_only_endpoint(obj.fields.children("endpoints"), host):
            obj.fields.clear("endpoints")
            endpoint = obj.fields.add("endpoints")
            endpoint.set_texts("addresses", [host])
            endpoint.child("conditions").set("ready", True)
            differs = True
        say_address(note, obj, differs, f"{host} port {hub.port}")
        return changed("hub-address") if differs else kept("hub-address")


def _is_only_endpoint(endpoints: list[Fields], host: str) -> bool:
    if len(endpoints) != 1:
        return False
    only = endpoints[0]
    return only.texts("addresses") == [host] and only.child("conditions").flag("ready") is True
