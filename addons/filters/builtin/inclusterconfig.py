"""Comments out the kubeconfig line in kube-proxy's own ConfigMap, so that kube-proxy uses its in-cluster
config: the hub.

Needs: the hub's address. Without one kube-proxy would call a ClusterIP for which it has yet to make the rules, so
nothing is changed. Changes: in the ConfigMap kube-system/kube-proxy, key config.conf, each line
that is, but for blanks, `kubeconfig: <value without a colon>`. Everything else is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from addons.filters.filter import CONFIG_MAPS, READS
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Outcome, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject

NAMESPACE = "kube-system"
NAME = "kube-proxy"
KEY = "config.conf"
_KUBECONFIG_LINE = re.compile(r"^( *)(kubeconfig:[^:\n]*)$", re.MULTILINE)


@dataclass(frozen=True)
class InClusterConfig:
    name = "inclusterconfig"
    resources = frozenset({CONFIG_MAPS})
    components = frozenset({"kubelet"})
    verbs = READS
    reasons = frozenset({"other-config-map", "no-hub-address", "no-kubeconfig", "in-cluster"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if obj.name != NAME or obj.namespace != NAMESPACE:
            return kept("other-config-map")
        if not inputs.hub.hosts:
            return kept("no-hub-address")
        data = obj.fields.mapping("data")
        text, edits = _KUBECONFIG_LINE.subn(r"\1#\2", data.get(KEY, ""))
        if not edits:
            return kept("no-kubeconfig")
        obj.fields.set_mapping("data", data | {KEY: text})
        note(
            f"configmap {NAMESPACE}/{NAME}",
            Outcome.CHANGED,
            f"its {KEY} names a kubeconfig, which is commented out",
        )
        return changed("in-cluster")
