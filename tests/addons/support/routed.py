"""A router with fakes for its parts, and flows with parsed requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mitmproxy import connection, http
from mitmproxy.test import tflow, tutils

from addons.filters.inputs import HubAddress
from addons.inputs.filter_inputs import FilterInputs
from addons.offline.cached_relay import CachedRelay
from addons.requests.answers import Answer, Answerer, ClientRequest, ClientStream
from addons.requests.caller import Caller, Listener
from addons.requests.request_context import RequestContext, begin, context_of
from addons.requests.route_decision import RouteKind
from addons.router import Router, RouterParts
from addons.rules.in_force import RulesInForce
from addons.rules.table import Rules, parse_rules
from addons.server.filtered_get import FilteredGets
from addons.views.source import Source
from kube.errors import unavailable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from tests.addons.support.guarding import under_guard
from tests.addons.support.hand_source import HandSource
from tests.addons.support.samples import HUB, raw, request_context

DATA = {
    "cache_agents": "cached",
    "filter_servicetopology": "reader/endpointslices#get;list;watch",
    "filter_discardcloudservice": "reader/services#get;list;watch",
}


class NoAnswerer:
    """An answerer that is never called: tests examine flows before they are answered."""

    async def answer(self, _wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
        raise NotImplementedError


ANSWERERS: Mapping[RouteKind, Answerer] = {
    kind: NoAnswerer() for kind in (RouteKind.VIEW, RouteKind.CACHED_RELAY, RouteKind.LOCAL)
}


class Known:
    """Rules that are known, or not yet."""

    def __init__(self) -> None:
        self.rules: Rules = parse_rules(DATA)
        self.is_known = True
        self.waited = 0

    async def wait_known(self, wait: float) -> None:
        self.waited += 1
        if not self.is_known:
            raise unavailable(f"not within {wait}", retry_after=1)


WAIT = 0.05
"""Seconds within which rules and inputs must be known."""


def _nowhere(_flow: http.HTTPFlow) -> None:
    raise NotImplementedError


def router_before_the_start() -> Router:
    """Build a router that was not started."""
    return under_guard(Router(_nowhere))


class Routed:
    """A router with its parts."""

    def __init__(self, cached_relay: CachedRelay | None = None) -> None:
        self.known = Known()
        self.sources: dict[str, HandSource] = {}
        self.inputs = FilterInputs("n1", "", HubAddress(("169.254.2.1",), 1), self._open, lambda _: None)
        self.relayed: list[http.HTTPFlow] = []
        """The flows that were relayed although the hub should have answered them."""
        self.router = under_guard(Router(self.relayed.append))
        self.issued_under_other_rules = 0
        """The newest version that a client may hold from before the last edit of the rules."""
        self.missing = ""
        """The reason why every client has to wait; "" for none."""
        self.router.start(
            RouterParts(
                ANSWERERS,
                FilteredGets(cast(RulesInForce, self.known), self.inputs, WAIT),
                lambda _type: self.issued_under_other_rules,
                *(cached_relay, dict, lambda: self.missing),
            )
        )

    def _open(self, list_watch: ListWatch) -> Source:
        return cast(Source, self.sources.setdefault(list_watch.type.resource, HandSource()))

    async def request(self, target: str, component: str = "reader", **how: Any) -> http.HTTPFlow:
        flow = flow_of(target, component, **how)
        await self.router.requestheaders(flow)
        return flow

    async def answer(
        self, flow: http.HTTPFlow, value: Json | bytes, code: int = 200, media_type: str = "application/json"
    ) -> http.HTTPFlow:
        """Run the hooks for the cloud's response."""
        body = value if isinstance(value, bytes) else raw(value)
        flow.response = http.Response.make(code, body, {"Content-Type": media_type})
        self.router.responseheaders(flow)
        await self.router.response(flow)
        return flow


def route_of(flow: http.HTTPFlow) -> RouteKind:
    context = decided(flow)
    assert context.route is not None
    return context.route.kind


def decided(flow: http.HTTPFlow) -> RequestContext:
    """Return the request's context after the routing decision."""
    found = context_of(flow)
    assert found is not None
    assert found.route is not None
    return found


def flow_of(
    target: str,
    component: str = "reader",
    *,
    method: str = "GET",
    caller: Caller = HUB,
    listener: Listener = Listener.PLAIN,
    accept: str | None = "application/json",
    **headers: str,
) -> http.HTTPFlow:
    fields = {
        "Accept": accept or "",
        "Accept-Encoding": "gzip",
        "Authorization": caller.authorization,
        **headers,
    }
    request = tutils.treq(
        method=method.encode(),
        path=target.encode(),
        headers=http.Headers([(name.encode(), value.encode()) for name, value in fields.items() if value]),
        content=b"",
    )
    flow = tflow.tflow(req=request)
    flow.server_conn = connection.Server(address=("cloud", 6443))
    begin(
        flow,
        request_context(
            target, method=method, component=component, caller=caller, listener=listener, accept=accept
        ),
    )
    return flow
