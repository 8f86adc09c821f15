"""The parsing of requests, and the requests that are refused before any other part gets them."""

from __future__ import annotations

import json

import pytest
from mitmproxy import http
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow, tutils

from addons.requests.caller import Listener
from addons.requests.request_context import RequestContext, context_of
from addons.resolve import Resolve
from tests.addons.support.guarding import under_guard


@pytest.fixture
def resolve() -> Resolve:
    return under_guard(Resolve())


def flow_of(
    path: bytes = b"/api/v1/services",
    listener: str = "plain",
    method: bytes = b"GET",
    tls: bool = True,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> http.HTTPFlow:
    request = tutils.treq(method=method, path=path, headers=http.Headers(headers or []))
    flow = tflow.tflow(req=request)
    flow.client_conn.proxy_mode = ProxyMode.parse(f"hub:{listener}@1" if listener else "regular")
    flow.client_conn.timestamp_tls_setup = 1.0 if tls else None
    flow.client_conn.tls_version = "TLSv1.3" if tls else None
    return flow


def resolved(resolve: Resolve, flow: http.HTTPFlow) -> RequestContext:
    resolve.requestheaders(flow)
    context = context_of(flow)
    assert context is not None, flow.response
    return context


def refused(resolve: Resolve, flow: http.HTTPFlow) -> int:
    resolve.requestheaders(flow)
    assert context_of(flow) is None
    assert flow.response is not None
    code: int = json.loads(flow.response.content or b"")["code"]
    return code


@pytest.mark.parametrize("listener", ["plain", "tls"])
def test_a_request_is_parsed(resolve: Resolve, listener: str) -> None:
    headers = [(b"User-Agent", b"kube-proxy/v1.36 (linux)"), (b"Accept", b"application/json")]
    path = b"/api/v1/namespaces/default/pods?watch=true"
    context = resolved(resolve, flow_of(path, listener, headers=headers))
    assert context.info.type is not None
    assert (context.info.verb, context.info.type.resource, context.info.namespace) == (
        "watch",
        "pods",
        "default",
    )
    assert (context.component, context.accept) == ("kube-proxy", "application/json")
    assert context.listener is Listener(listener)


@pytest.mark.parametrize(
    ("agent", "component"),
    [
        (None, "unknown"),
        (b"unknown", "unknown"),
        (b"../x", "unknown"),
        (b"..", "unknown"),
        (b"x" * 10_000, "unknown"),
        (b"\xff\x00\x80", "unknown"),
        (b"Kubernetes Java Client/25.0.0", "kubernetes java client"),
        (b"Kubelet/v1", "kubelet"),
    ],
)
def test_a_malformed_user_agent_is_the_component_unknown(
    resolve: Resolve, agent: bytes | None, component: str
) -> None:
    headers = [] if agent is None else [(b"User-Agent", agent)]
    assert resolved(resolve, flow_of(headers=headers)).component == component


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"/api/v1/\xff", 400),
        (b"/api/v1/%ff", 400),
        (b"/api/v1/%", 400),
        (b"/api/v1/a/../b", 400),
        (b"no-slash", 400),
        (b"*", 400),
        (b"/api/v1/pods?limit=x", 400),
        (b"/api/v1/a\x01b", 400),
    ],
)
def test_a_target_that_kube_apiserver_would_refuse_is_refused(
    resolve: Resolve, path: bytes, code: int
) -> None:
    assert refused(resolve, flow_of(path)) == code


@pytest.mark.parametrize("agent", [b"kube-probe/1.36", b"kube-lifecycle/1.36"])
def test_requests_that_kubelet_sends_for_pods_are_refused_at_the_plain_port(
    resolve: Resolve, agent: bytes
) -> None:
    """A pod could make kubelet send them with `httpGet: {host: 127.0.0.1, port: 10261}`. At other ports kubelet's
    User-Agent has no effect."""
    headers = [(b"User-Agent", agent)]
    assert refused(resolve, flow_of(headers=headers)) == 403
    resolved(resolve, flow_of(listener="tls", headers=headers))


def test_a_list_is_read_by_get_only(resolve: Resolve) -> None:
    assert refused(resolve, flow_of(method=b"HEAD")) == 405


def test_methods_are_case_sensitive(resolve: Resolve) -> None:
    """kube-apiserver forbids `get`, or answers 405."""
    assert resolved(resolve, flow_of(method=b"get")).info.verb == ""


def test_an_unknown_listener_is_refused(resolve: Resolve) -> None:
    assert refused(resolve, flow_of(listener="")) == 403


def test_plain_http_is_refused_at_the_tls_port(resolve: Resolve) -> None:
    assert refused(resolve, flow_of(listener="tls", tls=False)) == 400


@pytest.mark.parametrize(("listener", "code"), [("plain", 403), ("tls", 0)])
@pytest.mark.parametrize(
    "header",
    [(b"Host", b"evil.example"), (b"Origin", b"https://evil.example"), (b"Sec-Fetch-Site", b"cross-site")],
)
def test_a_request_of_a_web_page_is_refused_without_credentials(
    resolve: Resolve, listener: str, code: int, header: tuple[bytes, bytes]
) -> None:
    flow = flow_of(listener=listener, headers=[header])
    if code:
        assert refused(resolve, flow) == code
    else:
        assert resolved(resolve, flow).listener is Listener(listener)


def test_the_option_names_the_plain_port(resolve: Resolve) -> None:
    headers = [(b"Host", b"hub.example:10261")]
    assert refused(resolve, flow_of(headers=headers)) == 403
    resolve.allow(frozenset({"hub.example"}))
    assert resolved(resolve, flow_of(headers=headers)).listener is Listener.PLAIN


@pytest.mark.parametrize(
    ("path", "code"),
    [(b"//api/v1/services", 404), (b"/api/v1/namespaces//services", 404), (b"/api/v1//services", 404)],
)
def test_a_path_with_an_empty_segment_is_404(resolve: Resolve, path: bytes, code: int) -> None:
    """kube-apiserver answers 404; the hub once answered with the list named by the rest of the path."""
    assert refused(resolve, flow_of(path, "plain")) == code


def test_the_path_after_a_proxy_subresource_may_have_empty_segments(resolve: Resolve) -> None:
    path = b"/api/v1/namespaces/a/services/web/proxy//x"
    assert resolved(resolve, flow_of(path, "plain")).info.subresource == "proxy"
