"""Restricts metric labels to known names: any other name that a client sends is counted as `other`.

Prometheus stores every combination of labels until the process ends, so a client that can invent labels can exhaust
memory.
"""

from __future__ import annotations

from kube.requests.request_info import BUILTIN_GROUPS

HUB = "edgehub"
"""The component name of the hub's own requests. Rules never filter them."""
OTHER = "other"
VERBS = frozenset(
    {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy"}
    | {"post", "put", "head", "options"}
)
"""RBAC verbs, and lower-case HTTP methods for requests that name no resource."""
RESOURCES = frozenset(
    {
        *("bindings", "componentstatuses", "configmaps", "endpoints", "events", "limitranges"),
        *("namespaces", "nodes"),
        *("persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates", "replicationcontrollers"),
        *("resourcequotas", "secrets", "serviceaccounts", "services", "apiservices", "controllerrevisions"),
        *("daemonsets", "deployments", "replicasets", "statefulsets", "horizontalpodautoscalers"),
        *("cronjobs", "jobs"),
        *("certificatesigningrequests", "clustertrustbundles", "podcertificaterequests", "leases"),
        "endpointslices",
        *("flowschemas", "prioritylevelconfigurations", "ingressclasses", "ingresses", "ipaddresses"),
        "servicecidrs",
        *("networkpolicies", "poddisruptionbudgets", "clusterrolebindings", "clusterroles"),
        *("rolebindings", "roles"),
        *("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices", "priorityclasses"),
        *("csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"),
        *("volumeattributesclasses", "runtimeclasses", "customresourcedefinitions", "tokenreviews"),
        *("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies"),
        *("validatingadmissionpolicybindings", "localsubjectaccessreviews", "selfsubjectaccessreviews"),
        *("selfsubjectrulesreviews", "selfsubjectreviews", "subjectaccessreviews"),
        *("nodepools", "yurtappconfigbindings", "servicegrids"),
    }
)
"""Kubernetes' built-in resources, and the edge resources that the hub or its manager reads."""


GROUPS = BUILTIN_GROUPS | {"apps.openyurt.io", "superedge.io"}
"""API groups of these resources; "" is the core group."""


class BoundedLabels:
    """Turns names chosen by clients or nodes into labels: the first `limit` names, and `other` for all later ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        if name in self._names:
            return name
        if len(self._names) >= self._limit:
            return OTHER
        self._names.add(name)
        return name


def verb_label(verb: str) -> str:
    return verb if verb in VERBS else OTHER


def resource_label(resource: str) -> str:
    """Return the label of a resource: its plural without group; "" for a request that names none."""
    return resource if not resource or resource in RESOURCES else OTHER


def group_resource_label(group: str, resource: str) -> str:
    """Return the label of a resource with its group, as in RBAC: "endpointslices.discovery.k8s.io". The core group is
    omitted.
    """
    if resource not in RESOURCES or group not in GROUPS:
        return OTHER
    return f"{resource}.{group}" if group else resource
