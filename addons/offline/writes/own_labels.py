"""Which labels a kubelet may change by a write of a status; all others are the cloud's to decide. Pure.

Labels steer: by its pool label a node chooses whose endpoints it sees, and Services select pods by theirs. The
kube-apiserver refuses such a change of a node's (plugin NodeRestriction, and edgehub's own policy for the pool label).
"""

from __future__ import annotations

from collections.abc import Mapping

KUBELETS = frozenset(
    {
        *("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"),
        *("beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type"),
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
        *("node.kubernetes.io/instance-type", "node.kubernetes.io/windows-build"),
    }
)
"""Labels of its Node that kubelet compares with its own at each start, and repairs."""


def labels_of_others(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The labels that a write changes and that its kubelet does not decide on: of a Pod all, of a Node most."""
    changed = {key for key, _ in before.items() ^ after.items()}
    return sorted(changed - KUBELETS if kind == "Node" else changed)
