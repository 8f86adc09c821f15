"""The cached relay's routes: which requests the hub may answer offline, and which it never does."""

from __future__ import annotations

import pytest

from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.offline_policy import OfflinePolicy
from addons.requests.route_decision import RouteKind, decide
from addons.rules.table import parse_rules
from kube.errors import StatusError
from kube.requests.request_info import parse_request
from tests.addons.support.samples import NOBODY, POD

RULES = parse_rules(None)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODE = Caller(CredentialSource.HUB)


def kind(
    method: str,
    target: str,
    component: str = "kubelet",
    caller: Caller = NODE,
    listener: Listener = Listener.PLAIN,
    keeps: bool = True,
    *,
    is_up: bool = True,
    asks_kubelet: bool = False,
    accept: str = "application/json",
) -> RouteKind:
    info = parse_request(method, target)
    asked = (info, component, caller, listener, accept, RULES)
    policy = OfflinePolicy("n", is_up, asks_kubelet) if keeps else None
    return decide(*asked, offline_policy=policy).kind


@pytest.mark.parametrize(
    ("method", "target", "wanted"),
    [
        ("GET", "/api/v1/nodes/n", RouteKind.CACHED_RELAY),
        ("GET", "/api/v1/secrets", RouteKind.CACHED_RELAY),
        ("GET", "/api/v1/secrets?resourceVersion=0", RouteKind.VIEW),
        ("GET", "/api/v1/secrets?watch=1&resourceVersion=5", RouteKind.VIEW),
        ("GET", "/api/v1/namespaces/a/pods/p/log", RouteKind.RELAY),
        *(("GET", path, RouteKind.CACHED_RELAY) for path in ("/version", "/api", "/apis", "/openapi/v3")),
        ("HEAD", "/api/v1/nodes/n", RouteKind.RELAY),
        ("GET", "/api/v1/nodes/n/status", RouteKind.RELAY),
        ("GET", "/healthz", RouteKind.RELAY),
        ("GET", "/apis/apps/v1", RouteKind.CACHED_RELAY),
        ("GET", "/openapi/v3/api/v1", RouteKind.CACHED_RELAY),
        ("GET", "/metrics", RouteKind.RELAY),
        ("POST", "/api/v1/namespaces/a/secrets", RouteKind.RELAY),
        ("PATCH", "/api/v1/nodes/n/status", RouteKind.CACHED_RELAY),
        ("PUT", "/api/v1/namespaces/a/pods/p/status", RouteKind.CACHED_RELAY),
        ("PATCH", "/api/v1/nodes/n", RouteKind.RELAY),
        ("PATCH", "/api/v1/persistentvolumes/n/status", RouteKind.RELAY),
        ("PATCH", "/api/v1/namespaces/a/services/s/status", RouteKind.RELAY),
        ("PATCH", "/apis/metrics.example.com/v1/nodes/n/status", RouteKind.RELAY),
        ("POST", "/api/v1/nodes", RouteKind.CACHED_RELAY),
        ("POST", "/api/v1/namespaces/a/events", RouteKind.CACHED_RELAY),
        ("PATCH", "/apis/events.k8s.io/v1/namespaces/a/events/e", RouteKind.CACHED_RELAY),
        ("PUT", "/api/v1/namespaces/a/events/e", RouteKind.RELAY),
        ("DELETE", "/api/v1/namespaces/a/events/e", RouteKind.RELAY),
        ("POST", "/apis/example.com/v1/namespaces/a/events", RouteKind.RELAY),
        ("POST", "/apis/example.com/v1/namespaces/a/pods", RouteKind.RELAY),
        ("POST", "/api/v1/namespaces/a/pods", RouteKind.CACHED_RELAY),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", RouteKind.RELAY),
        ("POST", "/api/v1/namespaces/a/pods/p/binding", RouteKind.RELAY),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token", RouteKind.CACHED_RELAY),
        ("POST", "/api/v1/namespaces/a/serviceaccounts", RouteKind.RELAY),
        ("POST", "/apis/example.com/v1/namespaces/a/serviceaccounts/s/token", RouteKind.RELAY),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", RouteKind.RELAY),
        ("POST", "/version", RouteKind.RELAY),
        ("GET", f"{LEASES}/n?timeout=10s", RouteKind.LOCAL),
        ("GET", LEASES, RouteKind.CACHED_RELAY),
        ("PATCH", f"{LEASES}/n", RouteKind.LOCAL),
        ("DELETE", f"{LEASES}/n", RouteKind.RELAY),
        ("PUT", f"{LEASES}/n/status", RouteKind.RELAY),
        ("PUT", "/api/v1/namespaces/kube-node-lease/configmaps/n", RouteKind.RELAY),
        ("GET", f"{LEASES}/n", RouteKind.LOCAL),
        ("PUT", f"{LEASES}/n", RouteKind.LOCAL),
        ("POST", LEASES, RouteKind.LOCAL),
        ("PUT", f"{LEASES}/other", RouteKind.RELAY),
        ("PATCH", f"{LEASES}/other", RouteKind.RELAY),
        ("GET", f"{LEASES}/other", RouteKind.CACHED_RELAY),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/n", RouteKind.RELAY),
    ],
)
def test_the_route_of_each_request_of_a_cached_component(method: str, target: str, wanted: RouteKind) -> None:
    assert kind(method, target) is wanted


def test_nothing_is_deleted_without_the_cloud() -> None:
    target = "/api/v1/namespaces/a/pods/p"
    assert kind("DELETE", target) is RouteKind.RELAY
    for component in ("kubelet", "stranger"):
        with pytest.raises(StatusError, match="nothing is deleted") as refused:
            kind("DELETE", target, component=component, is_up=False)
        assert refused.value.code == 403
    assert kind("DELETE", target, keeps=False, is_up=False) is RouteKind.RELAY


def test_a_lease_is_local_for_callers_with_the_identity_of_the_node() -> None:
    assert kind("PUT", f"{LEASES}/n", caller=Caller(CredentialSource.OWN, "Bearer x")) is RouteKind.RELAY
    assert kind("PUT", f"{LEASES}/n", component="stranger") is RouteKind.RELAY
    assert kind("PUT", f"{LEASES}/n", keeps=False) is RouteKind.RELAY


def test_uncached_and_impersonating_callers_are_relayed() -> None:
    target = "/api/v1/nodes"
    assert kind("GET", target, component="stranger") is RouteKind.RELAY
    assert kind("GET", target, caller=Caller(CredentialSource.NONE)) is RouteKind.RELAY
    assert (
        kind("GET", target, caller=Caller(CredentialSource.OWN, "Bearer x", impersonates=True))
        is RouteKind.RELAY
    )
    assert kind("GET", target, keeps=False) is RouteKind.RELAY


@pytest.mark.parametrize(
    ("method", "target"), [("GET", "log"), ("POST", "exec"), ("GET", "attach"), ("POST", "portforward")]
)
def test_requests_for_kubelet_are_sent_to_it_offline_or_refused_with_the_reason(
    method: str, target: str
) -> None:
    path = f"/api/v1/namespaces/a/pods/p/{target}"
    assert kind(method, path, component="kubectl") is RouteKind.RELAY
    for component in ("kubectl", "stranger"):
        found = kind(method, path, component=component, is_up=False, asks_kubelet=True)
        assert found is RouteKind.KUBELET
        with pytest.raises(StatusError, match=r"no certificate for kubelet .* crictl") as refused:
            kind(method, path, component=component, is_up=False)
        assert (refused.value.code, refused.value.retry_after) == (503, None), "kubectl would try ten times"


def test_kubelets_reviews_of_the_hubs_user_are_answered_from_copies() -> None:
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert kind("POST", reviews, asks_kubelet=True) is RouteKind.CACHED_RELAY
    assert kind("POST", reviews) is RouteKind.RELAY
    assert (
        kind("POST", reviews, caller=Caller(CredentialSource.OWN, "Bearer x"), asks_kubelet=True)
        is RouteKind.RELAY
    )


@pytest.mark.parametrize("is_up", [True, False])
@pytest.mark.parametrize(("component", "answered"), [("kubectl", True), ("k9s", True), ("stranger", False)])
def test_users_requests_are_answered_from_copies_offline(component: str, answered: bool, is_up: bool) -> None:
    for target in (
        "/api/v1/pods?limit=500",
        "/api/v1/pods?watch=true&resourceVersion=7",
        "/api/v1/namespaces/a/pods/p",
        "/apis",
    ):
        found = kind("GET", target, component=component, is_up=is_up)
        assert (found is RouteKind.CACHED_RELAY) is (answered and not is_up)


def test_a_table_watch_is_answered_by_the_node_offline() -> None:
    target, table = "/api/v1/secrets?watch=true", "application/json;as=Table;v=v1;g=meta.k8s.io"
    assert kind("GET", target, accept=table) is RouteKind.RELAY
    assert kind("GET", target, accept=table, is_up=False) is RouteKind.CACHED_RELAY
    assert kind("GET", target, "stranger", accept=table, is_up=False) is RouteKind.RELAY


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/api/v1/namespaces/a/pods"),
        ("PATCH", "/api/v1/nodes/n/status"),
        ("POST", "/api/v1/namespaces/a/events"),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token"),
        ("PUT", f"{LEASES}/n"),
    ],
)
def test_a_users_write_is_relayed(method: str, target: str) -> None:
    assert kind(method, target, component="kubectl", is_up=False) is RouteKind.RELAY


@pytest.mark.parametrize("is_up", [True, False])
@pytest.mark.parametrize(
    ("method", "target", "wanted"),
    [
        ("GET", "shop/leases/web", RouteKind.CACHED_RELAY),
        ("PUT", "shop/leases/web", RouteKind.CACHED_RELAY),
        ("PUT", "shop/leases/other", RouteKind.RELAY),
        ("PUT", "other/leases/web", RouteKind.RELAY),
        ("PATCH", "shop/leases/web", RouteKind.CACHED_RELAY),
        ("GET", "shop/leases", RouteKind.RELAY),
        ("PUT", "shop/leases/web/status", RouteKind.RELAY),
    ],
)
def test_a_lease_that_the_rules_name_is_renewed_by_any_component(
    method: str, target: str, wanted: RouteKind, is_up: bool
) -> None:
    info = parse_request(method, f"/apis/coordination.k8s.io/v1/namespaces/{target}")
    rules, policy = parse_rules({"offline_leases": "shop/web"}), OfflinePolicy("n", is_up)
    for caller, expected in ((POD, wanted), (NOBODY, RouteKind.RELAY)):
        asked = (info, "shop", caller, Listener.TLS, "application/json", rules)
        assert decide(*asked, offline_policy=policy).kind is expected


def test_a_filtered_read_is_never_answered_as_a_table() -> None:
    rules = parse_rules({"filter_discardcloudservice": "kubectl/services#get;list"})
    info = parse_request("GET", "/api/v1/namespaces/a/services/s")
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    policy = OfflinePolicy("n", is_up=False)
    route = decide(*(info, "kubectl", NODE, Listener.PLAIN, accept, rules), offline_policy=policy)
    assert (route.kind, route.filtered_by) == (RouteKind.CACHED_RELAY, ("discardcloudservice",))
    assert route.read is not None
    assert [each.kind for each in route.read.accepted] == [""]
