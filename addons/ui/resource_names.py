"""Resources as people name them: by their plurals, in short or in the singular as kubectl takes them, or nearly so."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

COMMON_RESOURCES = frozenset(
    (
        *("configmaps", "csidrivers", "csinodes", "daemonsets", "deployments", "endpoints", "endpointslices"),
        *("events", "leases", "namespaces", "networkpolicies", "nodepools", "nodes", "pods"),
        *("persistentvolumeclaims", "persistentvolumes", "runtimeclasses", "secrets", "serviceaccounts"),
        *("servicecidrs", "services"),
    )
)
"""The resources that components of a node ask for, and people ask about."""

_SHORT = {
    "cm": "configmaps",
    "deploy": "deployments",
    "ds": "daemonsets",
    "ep": "endpoints",
    "ev": "events",
    "netpol": "networkpolicies",
    "no": "nodes",
    "np": "nodepools",
    "ns": "namespaces",
    "po": "pods",
    "pv": "persistentvolumes",
    "pvc": "persistentvolumeclaims",
    "sa": "serviceaccounts",
    "svc": "services",
}
"""The short names of kinds that are common on a node, as their API groups give them."""
_SINGULAR = {
    **{resource.removesuffix("s"): resource for resource in COMMON_RESOURCES - {"endpoints"}},
    "networkpolicy": "networkpolicies",
    "runtimeclass": "runtimeclasses",
}


def plural_of(resource: str) -> str:
    """The plural of a name that may be short or in the singular; its group stays behind the dot."""
    name, dot, group = resource.partition(".")
    return f"{_SHORT.get(name) or _SINGULAR.get(name) or name}{dot}{group}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A question for the known name that is nearest to an unknown one; "" where none is near."""
    matches = get_close_matches(name.lower(), sorted(known), n=1)
    return f": is it {matches[0]!r}?" if matches else ""
