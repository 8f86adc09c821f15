"""Points a pod at the hub if its containers' environment contains the API server's address.

Needs: the hub's address. Changes: the values of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT in containers that
have them; none is added and init containers do not change, as in YurtHub. If the hub has no address, or the pod has
more than MAX_VARIABLES, the pod is kept. YurtHub also filters the answers to kubelet's PATCH of a pod's status; rules
of this hub apply only to reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from addons.filters.filter import PODS, READS
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Outcome, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject

HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"
MAX_VARIABLES = 10_000
"""The most variables of one pod's containers, each of which costs microseconds of the event loop; and as many
containers."""


@dataclass(frozen=True)
class ServiceEnvUpdater:
    name = "serviceenvupdater"
    resources = frozenset({PODS})
    components = frozenset({"kubelet"})
    verbs = READS
    reasons = frozenset({"too-many-variables", "no-hub-address", "no-service-env", "hub-address"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        spec = obj.fields.child("spec")
        if spec.count("containers") > MAX_VARIABLES:
            return kept("too-many-variables")
        containers = spec.children("containers")
        if sum(c.count("env") for c in containers) > MAX_VARIABLES:
            return kept("too-many-variables")
        variables = [v for c in containers for v in c.children("env") if v.text("name") in (HOST, PORT)]
        if not variables:
            return kept("no-service-env")
        hub = inputs.hub
        if not hub.hosts:
            return kept("no-hub-address")
        wanted = {HOST: hub.hosts[0], PORT: str(hub.port)}
        differing = [
            variable for variable in variables if variable.text("value") != wanted[variable.text("name")]
        ]
        for variable in differing:
            variable.set("value", wanted[variable.text("name")])
        if differing:
            names = ", ".join(sorted({variable.text("name") for variable in differing}))
            note(
                f"pod {obj.namespace}/{obj.name}",
                Outcome.CHANGED,
                f"{names} point at {wanted[HOST]} port {hub.port}",
            )
        return changed("hub-address") if differing else kept("hub-address")
