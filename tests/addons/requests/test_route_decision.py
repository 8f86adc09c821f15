"""The decision table: the route of each combination of component, request and listener."""

from __future__ import annotations

import pytest

from addons.filters.chain import FILTERS
from addons.filters.plugins import in_order, plugin_of
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.offline_policy import AGGREGATED, DISCOVERY_PATHS
from addons.requests.route_decision import Route, RouteKind, decide, may_be_filtered, peer_refusal
from addons.rules.table import parse_rules
from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import parse_request
from kube.wire.encoding import Encoding
from kube.wire.negotiation import Representation
from tests.addons.support.filter_plugins import Hiding
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import HUB, NOBODY, POD, SERVICES, SLICES

RULES = parse_rules({"cache_agents": "cached", "filter_servicetopology": "getter/endpointslices#get"})
"""In addition to the built-in bindings (kube-proxy: slices, kubelet: services): a component that is only cached, and
one whose single objects are filtered."""

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PODS = "/api/v1/pods"
ONE_SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web"
IMPERSONATOR = Caller(CredentialSource.HUB, impersonates=True)
WATCH_LIST = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
STRAY_TOKEN = Caller(CredentialSource.OWN, "")
"""A caller with a token in Sec-WebSocket-Protocol of a non-WebSocket request, which kube-apiserver ignores."""


def route(
    target: str,
    component: str = "kube-proxy",
    accept: str | None = JSON,
    *,
    method: str = "GET",
    caller: Caller = HUB,
    listener: Listener = Listener.PLAIN,
) -> Route:
    info = parse_request(method, target)
    return decide(info, component, caller, listener, accept, RULES)


FILTERED = "filtered by localpods, servicetopology"
GET_FILTERED = "filtered by servicetopology"
CACHED = "cached component"
CONSISTENT = "a consistent list"
UNCACHED = "component neither filtered nor cached"
SINGLE = "a single object, not filtered"
NO_READ = "not a read of objects"


@pytest.mark.parametrize(
    ("target", "component", "kind", "reason"),
    [
        # A filtered component.
        (f"{SLICES}?resourceVersion=0", "kube-proxy", RouteKind.VIEW, FILTERED),
        (SLICES, "kube-proxy", RouteKind.VIEW, FILTERED),
        (f"{SLICES}?limit=500", "kube-proxy", RouteKind.VIEW, FILTERED),
        (f"{SLICES}?resourceVersion=7", "kube-proxy", RouteKind.VIEW, FILTERED),
        (f"{SLICES}?resourceVersion=7&resourceVersionMatch=Exact", "kube-proxy", RouteKind.VIEW, FILTERED),
        (f"{SLICES}?watch=true", "kube-proxy", RouteKind.VIEW, FILTERED),
        (f"{SLICES}?watch=true&resourceVersion=7", "kube-proxy", RouteKind.VIEW, FILTERED),
        (f"{SLICES}{WATCH_LIST}", "kube-proxy", RouteKind.VIEW, FILTERED),
        ("/apis/discovery.k8s.io/v1/watch/endpointslices", "kube-proxy", RouteKind.VIEW, FILTERED),
        ("/apis/discovery.k8s.io/v1beta1/endpointslices", "kube-proxy", RouteKind.VIEW, FILTERED),
        ("/api/v1/endpoints", "kube-proxy", RouteKind.VIEW, FILTERED),
        (ONE_SLICE, "kube-proxy", RouteKind.RELAY, SINGLE),
        (ONE_SLICE, "getter", RouteKind.RELAY, GET_FILTERED),
        (SLICES, "getter", RouteKind.RELAY, UNCACHED),
        # A cached component.
        (f"{PODS}?resourceVersion=0", "cached", RouteKind.VIEW, CACHED),
        (f"{PODS}?resourceVersion=7", "cached", RouteKind.VIEW, CACHED),
        (PODS, "cached", RouteKind.RELAY, CONSISTENT),
        (f"{PODS}?limit=500", "cached", RouteKind.RELAY, CONSISTENT),
        (f"{PODS}?limit=1&continue=token", "cached", RouteKind.RELAY, CONSISTENT),
        (f"{PODS}?resourceVersion=7&resourceVersionMatch=Exact", "cached", RouteKind.RELAY, CONSISTENT),
        (f"{PODS}?resourceVersion=7&resourceVersionMatch=NotOlderThan", "cached", RouteKind.VIEW, CACHED),
        (f"{PODS}?watch=true", "cached", RouteKind.VIEW, CACHED),
        (f"{PODS}?watch=true&resourceVersion=7", "cached", RouteKind.VIEW, CACHED),
        (f"{PODS}{WATCH_LIST}", "cached", RouteKind.VIEW, CACHED),
        ("/api/v1/namespaces/default/pods/web", "cached", RouteKind.RELAY, SINGLE),
        ("/api/v1/namespaces/default/pods/web/log?follow=true", "cached", RouteKind.RELAY, NO_READ),
        ("/api/v1/namespaces/default/pods/web/status", "cached", RouteKind.RELAY, NO_READ),
        # Any other component.
        (f"{PODS}?watch=true", "kubectl", RouteKind.RELAY, UNCACHED),
        (f"{PODS}?resourceVersion=0", "", RouteKind.RELAY, UNCACHED),
        # Requests for no object.
        ("/version", "kube-proxy", RouteKind.RELAY, NO_READ),
        ("/apis", "cached", RouteKind.RELAY, NO_READ),
        ("/", "", RouteKind.RELAY, NO_READ),
    ],
)
def test_the_route_of_each_read(target: str, component: str, kind: RouteKind, reason: str) -> None:
    def names(found: Route) -> list[str]:
        return list(found.filtered_by)

    found = route(target, component)
    assert (found.kind, found.reason.startswith(reason)) == (kind, True), found.reason
    assert ("servicetopology" in names(found)) is (reason in (FILTERED, GET_FILTERED))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("component", ["kube-proxy", "cached", "kubectl"])
@pytest.mark.parametrize("caller", [HUB, POD, NOBODY, IMPERSONATOR])
def test_writes_are_relayed_for_every_component(method: str, component: str, caller: Caller) -> None:
    target = SLICES if method == "POST" else ONE_SLICE
    assert route(target, component, method=method, caller=caller) == Route(RouteKind.RELAY, NO_READ)


def test_a_deletecollection_is_not_routed_as_a_list() -> None:
    assert route(SLICES, method="DELETE") == Route(RouteKind.RELAY, NO_READ)


@pytest.mark.parametrize(
    ("accept", "encoding", "kind"),
    [
        (None, Encoding.JSON, ""),
        ("*/*", Encoding.JSON, ""),
        (PROTOBUF, Encoding.PROTOBUF, ""),
        (f"{PROTOBUF},{JSON}", Encoding.PROTOBUF, ""),
        (f"{JSON},{PROTOBUF}", Encoding.JSON, ""),
        (f"{TABLE},{JSON}", Encoding.JSON, "Table"),
        (f"{TABLE.replace('v1', 'v1beta1')},{PROTOBUF}", Encoding.JSON, "Table"),
    ],
)
def test_a_filtered_read_gets_the_first_accepted_form_that_the_hub_supports(
    accept: str | None, encoding: Encoding, kind: str
) -> None:
    for target, component in ((f"{SLICES}?resourceVersion=0", "kube-proxy"), (ONE_SLICE, "getter")):
        found = route(target, component, accept).representation
        assert found is not None
        assert (found.encoding, found.kind) == (encoding, kind)


def test_metadata_is_returned_for_an_object_and_for_a_list() -> None:
    objects = METADATA.replace("List", "")
    lists, one = (f"{SLICES}?resourceVersion=0", "kube-proxy"), (ONE_SLICE, "getter")
    for (target, component), accept in ((lists, METADATA), (one, objects)):
        found = route(target, component, accept).representation
        assert found is not None
        assert found.kind
    with pytest.raises(StatusError, match="but the requested object is a list") as caught:
        route(*lists, f"{objects},{JSON}")
    assert caught.value.code == 406
    assert route(f"{PODS}?resourceVersion=0", "cached", objects).kind is RouteKind.RELAY, (
        "the cloud refuses it"
    )


@pytest.mark.parametrize(
    "query", ["?limit=2&resourceVersion=5", "?limit=2&resourceVersion=5&resourceVersionMatch=NotOlderThan"]
)
def test_unfiltered_pages_are_relayed(query: str) -> None:
    assert route(PODS + query, "cached").kind is RouteKind.RELAY
    assert route(f"{PODS}?limit=2&resourceVersion=0", "cached").kind is RouteKind.VIEW, (
        "which ignores the limit"
    )


@pytest.mark.parametrize(
    "accept", ["application/yaml", "text/html", "nonsense", METADATA.replace("v=v1", "v=v2")]
)
@pytest.mark.parametrize(("target", "component"), [(SLICES, "kube-proxy"), (ONE_SLICE, "getter")])
def test_a_filtered_read_in_a_form_that_only_the_cloud_supports_is_406(
    accept: str, target: str, component: str
) -> None:
    with refuses(406):
        route(target, component, accept)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (JSON, RouteKind.VIEW),
        (PROTOBUF, RouteKind.VIEW),
        (METADATA, RouteKind.VIEW),
        (None, RouteKind.VIEW),
        (TABLE, RouteKind.RELAY),
        (f"{TABLE},{JSON}", RouteKind.RELAY),
        ("application/yaml", RouteKind.RELAY),
        ("nonsense", RouteKind.RELAY),
    ],
)
def test_a_cached_component_gets_other_forms_from_the_cloud(accept: str | None, kind: RouteKind) -> None:
    assert route(f"{PODS}?resourceVersion=0", "cached", accept).kind is kind


@pytest.mark.parametrize(
    ("caller", "kind"),
    [
        (HUB, RouteKind.VIEW),
        (POD, RouteKind.VIEW),
        (NOBODY, RouteKind.RELAY),
        (IMPERSONATOR, RouteKind.RELAY),
        # Only the cloud can verify a credential that the hub cannot parse.
        (STRAY_TOKEN, RouteKind.RELAY),
        # kube-apiserver ignores this token. The hub once requested a review with it, and returned its 403.
        (Caller(CredentialSource.OWN, "Basic dTpw"), RouteKind.RELAY),
    ],
)
def test_the_credentials_decide_whether_a_cached_component_reads_a_view(
    caller: Caller, kind: RouteKind
) -> None:
    target = f"{PODS}?watch=true&resourceVersion=0"
    assert route(target, "cached", caller=caller).kind is kind


@pytest.mark.parametrize(
    ("target", "component"), [(f"{SLICES}?watch=true", "kube-proxy"), (ONE_SLICE, "getter")]
)
def test_a_filtered_read_without_a_usable_identity_is_401(target: str, component: str) -> None:
    with refuses(401):
        route(target, component, caller=NOBODY)


@pytest.mark.parametrize(
    "caller", [IMPERSONATOR, Caller(CredentialSource.OWN, "Bearer x", impersonates=True)]
)
def test_an_impersonator_gets_single_objects_filtered_and_no_lists(caller: Caller) -> None:
    found = route(ONE_SLICE, "getter", caller=caller)
    assert (found.kind, found.reason) == (RouteKind.RELAY, GET_FILTERED)
    for query in ("", "?watch=true"):
        with refuses(403):
            route(f"{SLICES}{query}", caller=caller)


def test_a_filtered_view_is_401_for_an_unreadable_credential() -> None:
    with refuses(401):
        route(f"{SLICES}?watch=true", caller=STRAY_TOKEN)


@pytest.mark.parametrize(
    ("query", "code"),
    [("?resourceVersionMatch=Exact", 422), ("?continue=abc", 400), ("?continue=abc&resourceVersion=0", 400)],
)
def test_invalid_options_of_a_filtered_request_get_kube_apiservers_status(query: str, code: int) -> None:
    with refuses(code):
        route(SLICES + query)


@pytest.mark.parametrize("query", ["?resourceVersion=x", "?watch=true&sendInitialEvents=true"])
def test_invalid_options_are_refused_for_a_cached_component_too(query: str) -> None:
    with pytest.raises(StatusError):
        route(PODS + query, "cached")
    assert route(PODS + query, "kubectl").kind is RouteKind.RELAY, "the cloud says so itself"


def test_a_component_with_the_hubs_user_agent_gets_filtered_reads() -> None:
    """No rule can bind the hub's name, which is in YurtHub's whitelist; any client can send it."""
    found = route(f"{PODS}?resourceVersion=0", "edgehub", listener=Listener.PLAIN)
    assert found.kind is RouteKind.VIEW


@pytest.mark.parametrize(
    ("target", "listener", "waits"),
    [
        (SLICES, Listener.PLAIN, True),
        (SLICES, Listener.TLS, True),
        (ONE_SLICE, Listener.PLAIN, True),
        (f"{SERVICES}?watch=true", Listener.PLAIN, True),
        (f"{ONE_SLICE}/status", Listener.PLAIN, False),
        ("/api/v1/nodes", Listener.PLAIN, False),
        ("/version", Listener.PLAIN, False),
    ],
)
def test_requests_that_rules_could_filter_wait_for_the_rules(
    target: str, listener: Listener, waits: bool
) -> None:
    assert may_be_filtered(parse_request("GET", target), listener, RULES) is waits


def test_a_write_does_not_wait_for_the_rules() -> None:
    assert not may_be_filtered(parse_request("POST", SLICES), Listener.PLAIN, RULES)


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [(f"{PROTOBUF},{JSON}", Encoding.JSON), ("*/*", Encoding.JSON), (JSON, Encoding.JSON)],
)
def test_a_filter_that_needs_json_gets_it(accept: str, encoding: Encoding) -> None:
    found = careful_route(accept)
    assert found.representation is not None
    assert found.read is not None
    assert found.representation.encoding is encoding
    assert {each.encoding for each in found.read.accepted} == {Encoding.JSON}


def test_a_filter_that_needs_json_is_406_for_a_protobuf_client() -> None:
    with pytest.raises(StatusError, match="filtered objects come as JSON, as complete objects") as caught:
        careful_route(PROTOBUF)
    assert caught.value.code == 406


def test_a_follower_that_requests_metadata_gets_complete_objects() -> None:
    """A follower would stop using a leader that refuses metadata."""
    info = parse_request("GET", SERVICES)
    assert info.type is not None
    accept = ListWatch(info.type).accept_names
    found = decide(info, "edgehub", HUB, Listener.PEER, accept, RULES)
    assert found.representation == Representation(Encoding.PROTOBUF)


def test_discovery_is_served_to_hubs_only_in_the_form_that_they_cache() -> None:
    info = parse_request("GET", "/apis")
    assert decide(info, "edgehub", HUB, Listener.PEER, f"{AGGREGATED},{JSON}", RULES).kind is RouteKind.PEER
    with pytest.raises(StatusError, match="the peer port serves /apis as") as caught:
        decide(info, "edgehub", HUB, Listener.PEER, JSON, RULES)
    assert caught.value.code == 406
    version = parse_request("GET", "/version")
    for accept in (None, "*/*", JSON):
        assert decide(version, "curl", HUB, Listener.PEER, accept, RULES).kind is RouteKind.PEER


def careful_route(accept: str) -> Route:
    """Return the route of kube-proxy's list of Services, with a filter that does not support protobuf."""
    filters = in_order(FILTERS, [plugin_of(Hiding(protobuf=False), "")])
    info = parse_request("GET", f"{SERVICES}?resourceVersion=0")
    rules = parse_rules({}, filters=filters)
    return decide(info, "kube-proxy", HUB, Listener.PLAIN, accept, rules)


SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
ONE = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices/s"


@pytest.mark.parametrize(
    "target",
    [
        *(SLICES, f"{SLICES}?watch=true&resourceVersion=7", "/api/v1/services?limit=500", "/api/v1/secrets"),
        *DISCOVERY_PATHS,
    ],
)
def test_unselected_lists_and_discovery_at_the_peer_port_go_to_the_pool(target: str) -> None:
    assert peer_refusal(parse_request("GET", target)) is None


@pytest.mark.parametrize(
    ("method", "target", "code", "reason"),
    [
        ("POST", "/version", 404, "path"),
        ("GET", "/apis/apps", 404, "path"),
        ("GET", "/livez", 404, "path"),
        ("GET", "/openapi/v2", 404, "path"),
        ("GET", ONE, 403, "verb"),
        ("POST", SLICES, 403, "verb"),
        ("DELETE", SLICES, 403, "verb"),
        ("PATCH", ONE, 403, "verb"),
        ("GET", "/api/v1/namespaces/n/services/s/status", 403, "subresource"),
        ("GET", "/api/v1/namespaces/n/services/s/proxy/x", 403, "subresource"),
        ("GET", "/api/v1/namespaces/n/services", 403, "selection"),
        ("GET", f"{SLICES}?labelSelector=a", 403, "selection"),
        ("GET", f"{SLICES}?watch=1&fieldSelector=metadata.name%3Da", 403, "selection"),
    ],
)
def test_all_other_requests_at_the_peer_port_are_refused(
    method: str, target: str, code: int, reason: str
) -> None:
    found = peer_refusal(parse_request(method, target))
    assert found is not None
    assert (found[0], found[1].code) == (reason, code)
