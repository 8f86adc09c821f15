"""Metric labels from known names alone: whatever else a client sends counts as `other`.

Prometheus keeps each combination of labels for good, so a label that a client can invent is memory that it can fill.
"""

from __future__ import annotations

HUB = "edgehub"
"""The hub's own component: its requests call themselves so, rules never filter them, and they are counted apart."""
OTHER = "other"
VERBS = frozenset(
    {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy"}
    | {"post", "put", "head", "options"}
)
"""The verbs of RBAC, and the methods (in lower case) of requests that name no resource."""
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
"""Kubernetes' own resources, and those of the edge that the hub or its manager reads."""


GROUPS = frozenset(
    {
        *("", "apps", "autoscaling", "batch", "events.k8s.io", "policy", "discovery.k8s.io"),
        "coordination.k8s.io",
        *("apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io"),
        "certificates.k8s.io",
        *("flowcontrol.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io"),
        *("resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "apps.openyurt.io", "superedge.io"),
    }
)
"""Their API groups; "" is the core group."""


class BoundedLabels:
    """Names that clients or nodes choose, as labels: the first `limit` names, and `other` for all later ones."""

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
    """The plural of a resource, without its group; "" for a request that names none."""
    return resource if not resource or resource in RESOURCES else OTHER


def group_resource_label(group: str, resource: str) -> str:
    """The name as in RBAC, "endpointslices.discovery.k8s.io"; the core group is left out."""
    if resource not in RESOURCES or group not in GROUPS:
        return OTHER
    return f"{resource}.{group}" if group else resource
