"""Decides the route of a request: relay, cached relay, view or local. Pure, so that tests are a table and `explain` can
show the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from addons.filters.filter import Filter
from addons.filters.plugins import need_json
from addons.requests.caller import BEARER, Caller, CredentialSource, Listener
from addons.requests.object_read import OBJECT_VERBS, ObjectRead, parse_continued, parse_read
from addons.requests.offline_policy import (
    DISCOVERY_PATHS,
    JSON,
    USER_TOOLS,
    OfflinePolicy,
    is_access_review,
    is_answered_offline,
    is_kubelets,
    is_object_watch,
    is_offline_lease,
    is_own_lease,
)
from addons.rules.shared_kinds import unfiltered_list_watch
from addons.rules.table import Rules
from kube.errors import (
    StatusError,
    expired,
    forbidden,
    not_acceptable,
    unauthorized,
    unavailable,
)
from kube.requests.request_info import RequestInfo, ResourceType
from kube.requests.resource_versions import parse_version
from kube.wire.encoding import Encoding
from kube.wire.negotiation import (
    METADATA_KIND,
    METADATA_KINDS,
    METADATA_LIST_KIND,
    TABLE_KIND,
    Representation,
    acceptable,
)

DELETIONS = frozenset({"delete", "deletecollection"})
PEER_PROBE_PATH = "/livez"
"""Path of followers' probes of a leader's health and of its link to the cloud. The answer is a 404, as for any unknown
path.
"""


class RouteKind(StrEnum):
    """How a request is answered."""

    RELAY = "relay"
    """By the cloud, unchanged except for filters of a single object."""
    VIEW = "view"
    """Answered from the node's own copy."""
    CACHED_RELAY = "cached_relay"
    """A relay that the node answers itself if the cloud is away, or fails during the request."""
    PEER = "peer"
    """For another hub of the pool: from the node's own copy, or refused."""
    LOCAL = "local"
    """Answered by the node, whether the cloud is reachable or not."""
    KUBELET = "kubelet"
    """By this node's kubelet, which the hub calls instead of kube-apiserver."""


SENT = frozenset({RouteKind.RELAY, RouteKind.CACHED_RELAY, RouteKind.KUBELET})
"""The routes that lead to a server."""


class Route(NamedTuple):
    """The route of a request, and the reason for it."""

    kind: RouteKind
    reason: str
    filtered_by: tuple[str, ...] = ()
    """Names of the filters that the rules bound when the route was decided.

    The component that filters gets the filters from the current rules.
    """
    representation: Representation | None = None
    """Form of a filtered or viewed answer; None if the cloud decides."""
    read: ObjectRead | None = None
    """The client's read; None if the hub itself answers no read."""


def may_be_filtered(info: RequestInfo, listener: Listener, rules: Rules) -> bool:
    """Whether a rules ConfigMap could bind a filter to this request. If so, the request waits until the rules are
    known.
    """
    if listener is Listener.PEER or info.type is None or info.subresource:
        return False
    return info.verb in OBJECT_VERBS and rules.bindings.could_filter(
        info.type.group, info.type.resource, info.verb
    )


def is_of_others(info: RequestInfo, newest: Callable[[ResourceType], int]) -> bool:
    """Whether a watch resumes from a version that its client may have got under other rules, or from another history.

    The cloud must not answer it: filters of earlier rules may have hidden objects from the client, and before a restore
    the cloud had other objects. Only a view can send the missing ones. `newest` returns a resource's newest such
    version.
    """
    options = info.options
    if info.verb != "watch" or options.send_initial_events or info.type is None:
        return False
    try:
        version = parse_version(options.resource_version)
    except ValueError:
        return False  # the cloud refuses such a version
    return 0 < version <= newest(info.type)


def corrected(info: RequestInfo, caller: Caller, accept: str | None) -> Route:
    """Return the route of a watch for which `is_of_others` is true: a view. StatusError 410 if no view can answer
    it.
    """
    representation = _first_made_here(acceptable(accept), info)
    if caller.impersonates or not _is_verifiable(caller) or representation is None:
        version = info.options.resource_version
        raise expired(f"too old resource version: {version} (of other filter rules, or another history)")
    read = parse_read(info, accept)
    reason = "from a version of other rules, or another history"
    return Route(RouteKind.VIEW, reason, representation=representation, read=read)


def decide(
    info: RequestInfo,
    component: str,
    caller: Caller,
    listener: Listener,
    accept: str | None,
    rules: Rules,
    *,
    offline_policy: OfflinePolicy | None = None,
) -> Route:
    """Return the route of a request. StatusError if a filter applies and the request cannot be answered filtered.

    `offline_policy` decides the answers without the cloud; None if the hub has no cache.
    """
    route = _online(info, component, caller, listener, accept, rules)
    is_away = offline_policy is not None and not offline_policy.is_up
    if offline_policy is not None and is_away and route.kind is RouteKind.RELAY and is_kubelets(info):
        if offline_policy.asks_kubelet:
            return route._replace(kind=RouteKind.KUBELET, reason="kubelet, while the cloud is away")
        raise unavailable(
            "the cloud cannot be reached, and this hub has no certificate for kubelet "
            "(--kubelet-client-certificate): use crictl on the pod's node"
        )
    if route.kind is not RouteKind.RELAY or offline_policy is None:
        return route
    if is_away and info.verb in DELETIONS:
        raise forbidden("the cloud cannot be reached, and nothing is deleted without it")
    known = (
        caller.credential_source is CredentialSource.HUB or caller.authorization
    ) and not caller.impersonates
    is_person = component in USER_TOOLS and info.method == "GET" and is_away
    if known and is_offline_lease(info, rules.leases):
        return route._replace(kind=RouteKind.CACHED_RELAY, reason="a lease that its holder renews here, too")
    if not known or not (rules.is_cached(component) or is_person):
        return route
    if caller.credential_source is CredentialSource.HUB and is_own_lease(info, offline_policy.node):
        return route._replace(kind=RouteKind.LOCAL, reason="this node's lease")
    is_offline_review = (
        offline_policy.asks_kubelet
        and caller.credential_source is CredentialSource.HUB
        and is_access_review(info)
    )
    if not (is_offline_review or is_answered_offline(info) or (is_away and is_object_watch(info))):
        return route
    reason = route.reason if rules.is_cached(component) else "people, while the cloud is away"
    return Route(RouteKind.CACHED_RELAY, reason, route.filtered_by, route.representation, route.read)


def _online(
    info: RequestInfo,
    component: str,
    caller: Caller,
    listener: Listener,
    accept: str | None,
    rules: Rules,
) -> Route:
    if listener is Listener.PEER:
        return _of_peer(info, accept)
    if info.type is None or info.subresource or info.verb not in OBJECT_VERBS:
        return Route(RouteKind.RELAY, "not a read of objects")
    filters = rules.bindings.chain(component, info.type.group, info.type.resource, info.verb)
    if filters:
        _refuse_unfilterable(info, caller)
        return _filtered(info, accept, filters)
    if info.verb == "get":
        return Route(RouteKind.RELAY, "a single object, not filtered")
    if not rules.is_cached(component):
        return Route(RouteKind.RELAY, "component neither filtered nor cached")
    if caller.impersonates or not _is_verifiable(caller):
        return Route(RouteKind.RELAY, "caller whose rights only the cloud knows")
    representation = next(iter(acceptable(accept)), None)
    if representation is None or not _is_made_here(representation, info):
        return Route(RouteKind.RELAY, "a representation that only the cloud makes")
    if representation.kind == TABLE_KIND:
        return Route(RouteKind.RELAY, "a Table, which the cloud makes for every kind")
    options = info.options
    if info.verb == "list" and (options.resource_version == "" or options.is_exact):
        return Route(RouteKind.RELAY, "a consistent list")
    if info.verb == "list" and (
        options.continue_token or (options.limit > 0 and options.resource_version != "0")
    ):
        return Route(RouteKind.RELAY, "a page of a list")
    read = parse_read(info, accept)
    return Route(RouteKind.VIEW, "cached component", representation=representation, read=read)


def _of_peer(info: RequestInfo, accept: str | None) -> Route:
    """Return the route of a request to the peer port. It never leads to the cloud: `addons.pool` answers or refuses
    it.
    """
    if peer_refusal(info) is not None:
        return Route(RouteKind.PEER, "not served by the peer port")
    if info.type is None:
        form = DISCOVERY_PATHS[info.path]
        is_plain_json = form == JSON and Representation(Encoding.JSON) in acceptable(accept)
        if not is_plain_json and form not in (accept or ""):
            raise not_acceptable(f"the peer port serves {info.path} as {form}")
        return Route(RouteKind.PEER, "a node of the pool")
    kinds = METADATA_KINDS if unfiltered_list_watch(info.type).metadata_only else {""}
    made = (representation for representation in acceptable(accept) if _is_made_here(representation, info))
    representation = next((representation for representation in made if representation.kind in kinds), None)
    if representation is None:
        form = "the metadata of nodes" if "" not in kinds else "complete objects"
        raise not_acceptable(f"the peer port serves {form}, as JSON or protobuf")
    read = parse_read(info, accept)
    return Route(RouteKind.PEER, "a node of the pool", representation=representation, read=read)


def _filtered(info: RequestInfo, accept: str | None, filters: tuple[Filter, ...]) -> Route:
    encodings = {Encoding.JSON} if need_json(filters) else {*Encoding}
    accepted = tuple(
        representation for representation in acceptable(accept) if representation.encoding in encodings
    )
    representation = _first_made_here(accepted, info)
    if info.verb == "list" and accepted and accepted[0].kind == METADATA_KIND:
        raise not_acceptable(f"you requested {METADATA_KIND}, but the requested object is a list")
    if representation is None:
        forms = "JSON" if need_json(filters) else "JSON or protobuf"
        raise not_acceptable(
            f"filtered objects come as {forms}, as complete objects, as PartialObjectMetadata, or as a Table"
        )
    if info.verb == "list" and info.options.continue_token:
        parse_continued(info.options)
    # Filters cannot parse a Table that the cloud has made.
    read = parse_read(info, accept)._replace(
        accepted=tuple(representation for representation in accepted if representation.kind != TABLE_KIND),
    )
    names = tuple(filter_.name for filter_ in filters)
    reason = f"filtered by {', '.join(names)}"
    if read.verb == "get":
        return Route(RouteKind.RELAY, reason, names, representation, read)
    return Route(RouteKind.VIEW, reason, names, representation, read)


def _first_made_here(accepted: Iterable[Representation], info: RequestInfo) -> Representation | None:
    return next((representation for representation in accepted if _is_made_here(representation, info)), None)


def _is_made_here(representation: Representation, info: RequestInfo) -> bool:
    """Whether the hub can make this representation: complete objects, their metadata, or Tables."""
    if representation.kind == TABLE_KIND:
        return True
    return representation.kind in ("", METADATA_LIST_KIND if info.verb == "list" else METADATA_KIND)


def _refuse_unfilterable(info: RequestInfo, caller: Caller) -> None:
    # A single object comes from the cloud, which checks the caller's rights.
    if caller.impersonates and info.verb != "get":
        raise forbidden("impersonation is not supported for lists and watches that are filtered here")
    if not _is_verifiable(caller):
        raise unauthorized("Unauthorized")


def _is_verifiable(caller: Caller) -> bool:
    """Whether the hub can check the caller's rights: the hub's own, or a token that the cloud can review."""
    has_token = caller.authorization[: len(BEARER)].lower() == BEARER
    return caller.credential_source is CredentialSource.HUB or (
        caller.credential_source is CredentialSource.OWN and has_token
    )


def peer_refusal(info: RequestInfo) -> tuple[str, StatusError] | None:
    """Return why the peer port refuses a request, as a metric's label and as the answer; None for a permitted one."""
    if info.method == "GET" and info.path in DISCOVERY_PATHS:
        return None
    if info.type is None:
        return "path", StatusError(404, "NotFound", "the server could not find the requested resource")
    if info.subresource:
        return "subresource", forbidden("the peer port serves no subresources")
    if info.verb not in ("list", "watch") or info.method != "GET":
        return "verb", forbidden("the peer port serves list and watch alone")
    options = info.options
    if info.namespace or info.name or options.label_selector or options.field_selector:
        return "selection", forbidden("the peer port serves unfiltered lists of all namespaces")
    return None
