"""An egress with two unprobed servers, and flows in the state in which they reach it."""

from __future__ import annotations

from collections.abc import Mapping

from mitmproxy import http
from mitmproxy.test import tflow, tutils

from addons.egress import Egress
from addons.link.health import Cloud, ServerHealth
from addons.link.link import PoolLink, RelayConnections, UpstreamManager
from addons.link.servers import PoolKey, parse_server
from addons.requests.caller import Caller
from addons.requests.request_context import RequestContext, begin, context_of
from addons.requests.route_decision import Route, RouteKind
from addons.telemetry import metrics
from kube.http.kubeconfig import NO_CREDENTIALS, Credentials
from tests.addons.support.cutting import FakeConnections
from tests.addons.support.guarding import under_guard
from tests.addons.support.observed import value_of
from tests.addons.support.samples import HUB, request_context

A, B = parse_server("https://a:6443"), parse_server("https://b:6443")
RELAY = Route(RouteKind.RELAY, "")
NO_SERVER = ("127.0.0.1", 4000)


def egress_on(connections: FakeConnections, credentials: Credentials = NO_CREDENTIALS) -> Egress:
    """Build an egress that knows two servers, without probes."""
    link = UpstreamManager(Cloud([ServerHealth(A), ServerHealth(B)], "priority"), credentials)
    link.pool = PoolLink(cut_lent=connections.cut_lent)
    egress = under_guard(Egress(connections))
    egress.start(link)
    return egress


def flow_of(
    route: Route | None = RELAY, caller: Caller = HUB, headers: Mapping[str, str] | None = None
) -> http.HTTPFlow:
    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    flow = tflow.tflow(req=tutils.treq(headers=http.Headers(fields), content=b""))
    made: RequestContext = request_context("/api/v1/pods", caller=caller)
    made.route = route
    begin(flow, made)
    return flow


def pool_key_of(flow: http.HTTPFlow) -> PoolKey:
    """Return the connection pool key of a request."""
    context = context_of(flow)
    assert context is not None
    assert context.upstream is not None
    assert isinstance(context.upstream.connections, RelayConnections)
    return context.upstream.connections.key


def counted(direction: str, server: object = A) -> float:
    return value_of(metrics.UPSTREAM_BYTES.labels(direction, str(server)))
