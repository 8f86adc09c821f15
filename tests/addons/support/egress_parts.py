"""An egress with two servers that nobody probes, and flows as they reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mitmproxy import http
from mitmproxy.test import tflow, tutils

from addons.egress import Egress
from addons.requests.caller import Caller
from addons.requests.request_context import RequestContext, begin
from addons.requests.route_decision import Route, RouteKind
from addons.telemetry import metrics
from addons.upstream.health import Cloud, ServerHealth
from addons.upstream.servers import parse_server
from kube.http.client import Client
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.cutting import Cut
from tests.addons.support.guarding import under_guard
from tests.addons.support.observed import value_of
from tests.addons.support.samples import HUB, request_context

A, B = parse_server("https://a:6443"), parse_server("https://b:6443")
RELAY = Route(RouteKind.RELAY, "")
ORIGIN = ("127.0.0.1", 4000)


def egress_on(connections: Cut) -> Egress:
    """Knows two servers; nothing probes them."""
    made = under_guard(Egress(connections))
    made.start(Cloud([], "priority"), NO_CREDENTIALS, ORIGIN, cast(Client, None))
    made.cloud.servers += [ServerHealth(A), ServerHealth(B)]
    return made


def flow_of(
    route: Route | None = RELAY,
    caller: Caller = HUB,
    server: str = "",
    headers: Mapping[str, str] | None = None,
) -> http.HTTPFlow:
    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    flow = tflow.tflow(req=tutils.treq(headers=http.Headers(fields), content=b""))
    made: RequestContext = request_context("/api/v1/pods", caller=caller)
    made.route, made.server = route, server
    begin(flow, made)
    return flow


def counted(direction: str, server: object = A) -> float:
    return value_of(metrics.UPSTREAM_BYTES.labels(direction, str(server)))
