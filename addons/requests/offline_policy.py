"""Decides which requests the hub can answer itself while the cloud is away. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kube.requests.request_info import RequestInfo

DISCOVERY = ("/version", "/api", "/openapi/")
"""Path prefixes of API discovery; "/api" covers /apis."""
JSON = "application/json"
AGGREGATED = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""Media type of aggregated discovery: all groups and resources in one answer. kube-apiserver supports it since 1.30,
and clients request it first.
"""
DISCOVERY_PATHS = {"/version": JSON, "/api": AGGREGATED, "/apis": AGGREGATED}
"""The cached discovery paths, each with its media type.

The answers are the same for every identity of a cluster, and by default readable by all (`system:discovery`).
"""
LEASE_NAMESPACE = "kube-node-lease"
LEASES = ("coordination.k8s.io", "leases", "")
RENEWALS = ("get", "update", "patch")
"""Verbs by which a client renews an existing Lease."""
PODS = ("", "pods", "")
TOKENS = ("", "serviceaccounts", "token")
ACCESS_REVIEWS = ("authorization.k8s.io", "subjectaccessreviews", "")
EVENTS = frozenset({("", "events", ""), ("events.k8s.io", "events", "")})
REGISTERED = frozenset({("", "nodes", ""), ("storage.k8s.io", "csinodes", "")})
KUBELETS = frozenset(("", "pods", subresource) for subresource in ("log", "exec", "attach", "portforward"))
STATUSES = frozenset({("", "nodes", "status"), ("", "pods", "status")})
"""The statuses that kubelet reports. Other writers of a status can wait until the cloud is back."""

USER_TOOLS = frozenset({"kubectl", "k9s"})
"""Command-line tools of users.

While the cloud is away, their reads may be partial, with a warning. A controller would treat a partial list as
complete.
"""


class OfflinePolicy(NamedTuple):
    """Facts that decide offline answers: this node, and whether the cloud is reachable as far as the hub knows."""

    node: str
    is_up: bool = True
    asks_kubelet: bool = False
    """Whether the hub may call this node's kubelet itself while the cloud is away."""


def is_own_lease(info: RequestInfo, node: str) -> bool:
    """Whether the request is kubelet's heartbeat: a read, creation or renewal of its node's Lease."""
    if _what(info) != LEASES or info.namespace != LEASE_NAMESPACE:
        return False
    return info.verb == "create" or (info.verb in RENEWALS and info.name == node)


def is_offline_lease(info: RequestInfo, leases: Collection[tuple[str, str]]) -> bool:
    """Whether a leader-electing client reads or renews one of `leases`, given as namespace and name."""
    if not leases or _what(info) != LEASES or info.verb not in RENEWALS:
        return False
    return (info.namespace, info.name) in leases


def is_answered_offline(info: RequestInfo) -> bool:
    """Whether the hub may answer this request while the cloud is away."""
    if info.method == "GET":
        if info.type is None:
            return info.path.startswith(DISCOVERY)
        return info.verb in ("get", "list") and not info.subresource
    kinds = (is_status_write, is_event, is_pod_creation, is_token_request, is_registration)
    return any(is_kind(info) for is_kind in kinds)


def is_object_watch(info: RequestInfo) -> bool:
    """Whether this is a watch of objects."""
    return info.verb == "watch" and info.type is not None and not info.subresource


def is_status_write(info: RequestInfo) -> bool:
    return _what(info) in STATUSES and info.verb in ("update", "patch")


def is_kubelets(info: RequestInfo) -> bool:
    """Whether kube-apiserver would forward this request to the pod's kubelet: logs, exec and the like."""
    return _what(info) in KUBELETS


def is_access_review(info: RequestInfo) -> bool:
    """True for a review of another user's rights, as kubelet requests for its own clients."""
    return _what(info) == ACCESS_REVIEWS and info.verb == "create"


def is_event(info: RequestInfo) -> bool:
    return _what(info) in EVENTS and info.verb in ("create", "patch")


def is_registration(info: RequestInfo) -> bool:
    """Whether kubelet registers its node."""
    return _what(info) in REGISTERED and info.verb == "create"


def is_pod_creation(info: RequestInfo) -> bool:
    return _what(info) == PODS and info.verb == "create"


def is_token_request(info: RequestInfo) -> bool:
    return _what(info) == TOKENS and info.verb == "create"


def _what(info: RequestInfo) -> tuple[str, ...]:
    """Return group, resource and subresource; () for a path that names no objects."""
    return () if info.type is None else (info.type.group, info.type.resource, info.subresource)
