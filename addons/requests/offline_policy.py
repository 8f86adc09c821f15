"""Decides which requests the hub can answer itself while the cloud is away. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kube.requests.request_info import RequestInfo

DISCOVERY = ("/version", "/api", "/openapi/")
"""Paths below which the API says what it has; /apis begins like /api."""
LEASE_NAMESPACE = "kube-node-lease"
EVENT_GROUPS = frozenset({"", "events.k8s.io"})
REGISTERED = frozenset({("", "nodes"), ("storage.k8s.io", "csinodes")})
STATUS_OF = frozenset({"nodes", "pods"})
"""What kubelet reports on. Others that write a status can wait until the cloud is back."""

PEOPLE = frozenset({"kubectl", "k9s"})
"""The programs of people. What they read while the cloud is away may be partial, which the hub says to them; a
controller would take it for the whole."""


@dataclass(frozen=True, slots=True)
class OfflinePolicy:
    """The node that stands in, and whether there is a cloud, as far as is known."""

    node: str
    is_up: bool = True
    asks_kubelet: bool = False
    """The hub may ask this node's kubelet in the cloud's place."""


def is_own_lease(info: RequestInfo, node: str) -> bool:
    """Whether this is kubelet's sign of life: reading, creating or renewing the lease of its node."""
    if not _is_lease(info) or info.namespace != LEASE_NAMESPACE:
        return False
    return info.verb == "create" or (info.verb in ("get", "update") and info.name == node)


def is_kept_lease(info: RequestInfo, leases: Collection[tuple[str, str]]) -> bool:
    """Whether a leader reads or renews a Lease of these, by namespace and name."""
    return (
        bool(leases)
        and _is_lease(info)
        and info.verb in ("get", "update")
        and (info.namespace, info.name) in leases
    )


def _is_lease(info: RequestInfo) -> bool:
    type_ = info.type
    if type_ is None or info.subresource:
        return False
    return (type_.group, type_.resource) == ("coordination.k8s.io", "leases")


def is_answered_offline(info: RequestInfo) -> bool:
    """Whether the node has something to say to a request when the cloud is gone."""
    if info.method == "GET":
        if info.type is None:
            return info.path.startswith(DISCOVERY)
        return info.verb in ("get", "list") and not info.subresource
    kinds = (is_status_write, is_event, is_pod_creation, is_token_request, is_registration)
    return any(is_kind(info) for is_kind in kinds)


def is_object_watch(info: RequestInfo) -> bool:
    """Whether this is a watch of objects: people see those that the node has."""
    return info.verb == "watch" and info.type is not None and not info.subresource


def is_status_write(info: RequestInfo) -> bool:
    return (
        info.type is not None
        and not info.type.group
        and info.type.resource in STATUS_OF
        and info.subresource == "status"
        and info.verb in ("update", "patch")
    )


def is_kubelets(info: RequestInfo) -> bool:
    """Whether kube-apiserver has a pod's kubelet answer: its logs, and what goes on in its containers."""
    if info.type is None or (info.type.group, info.type.resource) != ("", "pods"):
        return False
    return info.subresource in ("log", "exec", "attach", "portforward")


def is_access_review(info: RequestInfo) -> bool:
    """Whether this asks what another user may do, as kubelet does of those who call it."""
    return (
        info.type is not None
        and (info.type.group, info.type.resource) == ("authorization.k8s.io", "subjectaccessreviews")
        and info.verb == "create"
    )


def is_event(info: RequestInfo) -> bool:
    return (
        info.type is not None
        and info.type.group in EVENT_GROUPS
        and info.type.resource == "events"
        and not info.subresource
        and info.verb in ("create", "patch")
    )


def is_registration(info: RequestInfo) -> bool:
    """Whether kubelet makes known that it is there."""
    return (
        info.type is not None
        and (info.type.group, info.type.resource) in REGISTERED
        and not info.subresource
        and info.verb == "create"
    )


def is_pod_creation(info: RequestInfo) -> bool:
    return (
        info.type is not None
        and (info.type.group, info.type.resource, info.subresource) == ("", "pods", "")
        and info.verb == "create"
    )


def is_token_request(info: RequestInfo) -> bool:
    return (
        info.type is not None
        and (info.type.group, info.type.resource, info.subresource) == ("", "serviceaccounts", "token")
        and info.verb == "create"
    )
