"""Routes requests: to a part that answers them, or upstream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from mitmproxy import http

from addons.offline.accepted.accepted_writes import is_write
from addons.offline.accepted.newest_forms import returns_full_object
from addons.offline.cached_relay import CachedRelay
from addons.offline.offline_request import OfflineRequest
from addons.requests.answers import Answerer
from addons.requests.caller import CredentialSource
from addons.requests.hidden_credentials import lend, path_of, redirect
from addons.requests.request_context import RequestContext, context_of
from addons.requests.route_decision import (
    Route,
    RouteKind,
    corrected,
    decide,
    is_of_others,
    may_be_filtered,
)
from addons.server.filtered_get import FilteredGets, ask_for_object, is_filtered_get, take_object
from addons.server.messages import SWITCHING_PROTOCOLS, UNROUTED
from addons.server.relay import finish
from addons.telemetry import metrics
from kube.errors import StatusError, internal, unavailable
from kube.http.client import RawResponse
from kube.requests.request_info import ResourceType

CLOUDS = frozenset({RouteKind.RELAY, RouteKind.CACHED_RELAY})
"""The kinds of requests that the cloud answers."""


class RouterParts(NamedTuple):
    """The router's dependencies."""

    answerers: Mapping[RouteKind, Answerer]
    filtered_gets: FilteredGets
    issued_under_other_rules: Callable[[ResourceType], int]
    """Returns the newest version that a client may hold from other rules, or from another history."""
    cached_relay: CachedRelay | None = None
    """None in a hub without a cache."""
    peer_headers: Callable[[], Mapping[str, str]] = dict
    """Returns the additional headers of each answer at the peer port."""
    waits_for: Callable[[], str] = str
    """Returns the reason for which every client is refused now, such as a missing identity; "" if there is none."""


class Router:
    """Applies the decision of `addons.requests.route_decision`."""

    name = "edgehub-router"

    def __init__(self, relay: Callable[[http.HTTPFlow], None]) -> None:
        """`relay` sends a request to a server that the hub was to answer itself: `addons.egress.Egress.relay`."""
        self._relay_to_server = relay
        self._relayed: WeakValueDictionary[str, http.HTTPFlow] = WeakValueDictionary()
        """Open relayed watches. No hook reports the end of one by WebSocket."""
        self._started: RouterParts | None = None

    def start(self, parts: RouterParts) -> None:
        """Begin to route requests. Earlier ones are refused."""
        self._started = parts

    @property
    def _parts(self) -> RouterParts:
        """The parts; StatusError before the start."""
        if self._started is None:
            raise unavailable("the hub is starting", retry_after=1)
        return self._started

    def rules_changed(self) -> None:
        """End the relayed watches that the rules now filter: their clients reopen them and get views."""
        for flow in list(self._relayed.values()):
            if (context := context_of(flow)) is not None and self._parts.filtered_gets.filters(context):
                finish(flow, "the rules changed")

    def restored(self, resource: str) -> None:
        """End the relayed watches whose clients may have another history, and watches of a resource that no view
        answered."""
        for flow in list(self._relayed.values()):
            context = context_of(flow)
            read = context.route.read if context is not None and context.route is not None else None
            is_left = read is not None and read.type.group_resource == resource
            if context is not None and (
                is_left or is_of_others(context.info, self._parts.issued_under_other_rules)
            ):
                finish(flow, "the cloud was restored from a backup")

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None:
            raise internal("the request was not resolved")
        parts = self._parts
        if missing := parts.waits_for():
            raise unavailable(missing, retry_after=1)
        rules = parts.filtered_gets.rules
        if may_be_filtered(context.info, context.listener, rules.rules):
            await rules.wait_known(parts.filtered_gets.wait)
        context.route = decide(
            context.info,
            context.component,
            context.caller,
            context.listener,
            context.accept,
            rules.rules,
            offline_policy=parts.cached_relay.offline_policy(context.caller) if parts.cached_relay else None,
        )
        is_relayed = context.route.kind is RouteKind.RELAY
        if is_relayed and is_of_others(context.info, parts.issued_under_other_rules):
            context.route = corrected(context.info, context.caller, context.accept)
        _ask_for_object(flow, context, with_cells=True)
        is_seen_here = context.route.filtered_by or context.route.kind is RouteKind.CACHED_RELAY
        if is_seen_here and context.info.verb != "watch":
            # As kube-apiserver, which answers it by HTTP. Behind a 101 the hub would see nothing.
            flow.request.headers.pop("Upgrade", None)
        if context.route.kind in (RouteKind.VIEW, RouteKind.PEER, RouteKind.LOCAL):
            self._answer_locally(flow, context)
        elif context.route.kind is RouteKind.CACHED_RELAY:
            if parts.cached_relay is not None and parts.cached_relay.goes_to_cloud(
                context.info, context.caller
            ):
                context.failover = self._fail_over
            else:
                self._answer_locally(flow, context)
        elif context.route.kind is RouteKind.KUBELET:
            await self._route_to_kubelet(context, flow.request)
        elif context.info.verb == "watch":
            self._relayed[flow.id] = flow
        cached_relay = parts.cached_relay
        if cached_relay is not None and context.answerer is None and context.route.kind in CLOUDS:
            context.asked_at = cached_relay.answers.accepted.count
            context.is_write = await cached_relay.answers.begin_write(context.info)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None or flow.response is None:
            return
        if (
            context.route.kind is not RouteKind.VIEW
            and not context.route.filtered_by
            and self._parts.filtered_gets.filters(context)
        ):
            raise unavailable("the rules have changed meanwhile", retry_after=1)
        cached_relay = self._parts.cached_relay
        if context.route.kind is RouteKind.RELAY and cached_relay is not None:
            cached_relay.answers.learn(
                context.component, context.caller, context.info, flow.response.status_code
            )
        if flow.response.status_code < 300 and not returns_full_object(context.info):
            self._record_lost_write(flow, context)  # its answer is no object, and perhaps a stream
        if context.answerer is not None and (
            context.route.kind is RouteKind.VIEW or not context.route.filtered_by
        ):
            flow.response.stream = True
        if context.route.kind is RouteKind.PEER:
            flow.response.headers.update(self._parts.peer_headers())
            flow.response.stream = _counted(context.peer)
        is_streamed = context.route.kind in (RouteKind.RELAY, RouteKind.KUBELET)
        if flow.response.stream or (is_streamed and not context.route.filtered_by):
            _count(context, flow.response.status_code)

    async def response(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or flow.response is None:
            return
        if context.info.verb == "watch" and flow.response.status_code != SWITCHING_PROTOCOLS:
            self._relayed.pop(flow.id, None)
        await self._end_write(flow, context)
        cached_relay, is_complete = self._parts.cached_relay, flow.response.raw_content is not None
        code = 500
        try:
            taken = take_object(flow.response) if is_filtered_get(flow, context) else None
            _ask_for_object(flow, context, with_cells=False)  # of which copies have the answer
            if context.failover is not None and cached_relay is not None and is_complete:
                request, answer = _offline_request(context, flow.request), _answer_in(flow.response)
                cached_relay.answers.keep_response(context.caller, request, answer, context.asked_at)
            if taken is not None:
                await self._parts.filtered_gets.filter(flow.response, context, *taken)
            code = flow.response.status_code
        except StatusError as error:
            code = error.code
            raise
        finally:
            _count(context, code)

    def error(self, flow: http.HTTPFlow) -> None:
        self._relayed.pop(flow.id, None)
        context = context_of(flow)
        if context is not None:
            self._record_lost_write(flow, context)
            _count(context, 499 if flow.error is not None and "disconnect" in flow.error.msg else 502)

    def _fail_over(self, flow: http.HTTPFlow) -> None:
        """Answer a request whose server failed, if the node can."""
        context = context_of(flow)
        assert context is not None
        context.sent += 1
        self._record_lost_write(flow, context)
        if context.caller.credential_source is CredentialSource.HUB:
            lend(flow.request, "")  # the server that failed was lent the hub's
        self._answer_locally(flow, context)
        context.upstream = None
        flow.request.scheme = "http"
        flow.request.data.host, flow.request.data.port = UNROUTED

    async def _route_to_kubelet(self, context: RequestContext, request: http.Request) -> None:
        cached_relay = self._parts.cached_relay
        if cached_relay is None or cached_relay.answers.pod_requests is None:
            raise internal("the request is not routed to kubelet")
        path = path_of(request).decode()
        target = await cached_relay.answers.pod_requests.at_kubelet(context.caller, context.info, path)
        context.kubelet_port = target.port
        redirect(request, target.target)

    def _answer_locally(self, flow: http.HTTPFlow, context: RequestContext) -> None:
        assert context.route is not None
        _ask_for_object(flow, context, with_cells=False)
        context.answerer = self._parts.answerers[context.route.kind]
        if context.route.kind in (RouteKind.VIEW, RouteKind.CACHED_RELAY, RouteKind.LOCAL):
            context.relay = self._relay

    def _relay(self, flow: http.HTTPFlow) -> None:
        """Relay a request that the hub was to answer itself; StatusError if no server is available."""
        context = context_of(flow)
        assert context is not None
        assert context.route is not None
        context.answerer = context.relay = None
        _ask_for_object(flow, context, with_cells=True)
        if context.route.kind is RouteKind.VIEW:
            read, reason = context.route.read, context.route.reason
            context.route = Route(RouteKind.RELAY, f"no view of it: {reason}", read=read)
            self._relayed[flow.id] = flow
        elif context.route.kind is RouteKind.LOCAL:
            context.route = Route(RouteKind.RELAY, f"the cloud's part of {context.route.reason}")
        else:
            context.failover = self._fail_over
            context.is_write = is_write(context.info)
        self._relay_to_server(flow)

    async def _end_write(self, flow: http.HTTPFlow, context: RequestContext) -> None:
        """Update cached state by the answer to a write, before the client gets it."""
        cached_relay = self._parts.cached_relay
        if context.is_write and cached_relay is not None and flow.response is not None:
            context.is_write = False
            was_sent = context.upstream is not None
            request, answer = _offline_request(context, flow.request), _answer_in(flow.response)
            await cached_relay.written(context.caller, request, answer, was_sent=was_sent)

    def _record_lost_write(self, flow: http.HTTPFlow, context: RequestContext) -> None:
        if context.is_write and (cached_relay := self._parts.cached_relay) is not None:
            context.is_write = False
            request = _offline_request(context, flow.request)
            cached_relay.answers.lost(request, was_sent=context.upstream is not None)


def _ask_for_object(flow: http.HTTPFlow, context: RequestContext, *, with_cells: bool) -> None:
    route = context.route
    if route is not None and route.filtered_by and route.kind is not RouteKind.VIEW:
        ask_for_object(flow.request, route, with_cells=with_cells)


def _offline_request(context: RequestContext, request: http.Request) -> OfflineRequest:
    target, body = path_of(request).decode(), request.raw_content or b""
    return OfflineRequest.of(context.info, target, request.headers, body)


def _answer_in(response: http.Response) -> RawResponse:
    return RawResponse(response.status_code, response.headers, response.raw_content or b"")


def _counted(node: str) -> Callable[[bytes], bytes]:
    """Return a stream function that counts the bytes sent to another node's hub."""
    counter = metrics.PEER_BYTES.labels("sent", metrics.peer_label(node))

    def count(chunk: bytes) -> bytes:
        counter.inc(len(chunk))
        return chunk

    return count


def _count(context: RequestContext, code: int) -> None:
    if context.counted or context.route is None:
        return
    context.counted = True
    component = metrics.component_label(context.component)
    metrics.count_request(component, context.info, context.route.kind, code)
