"""Sends each request its way, to the origin or to the cloud, and filters single objects on their way back."""

from __future__ import annotations

import asyncio

from mitmproxy import http

from addons import metrics
from addons.backed import Backed
from addons.caller import Lending, Listener
from addons.connections import Connections
from addons.exchange import TICKET_HEADER, Exchange, exchange_of
from addons.filter_inputs import FilterInputs
from addons.filters.chain import apply_chain
from addons.filters.verdict import Outcome
from addons.guard import guarded
from addons.options import Options
from addons.origin import Origin
from addons.routing import Kind, Route, decide, may_be_filtered
from addons.rule_table import Rules
from addons.rules import RulesInForce
from kube.codec import Codec, codec_for
from kube.encoding import Encoding
from kube.negotiation import METADATA_KIND
from kube.objects import decode_object
from kube.status import StatusError, internal, not_found, unavailable


class Router:
    """Applies the decision of `addons.routing`."""

    name = "edgehub-route"

    def __init__(self, options: Options, connections: Connections) -> None:
        self._options = options
        self._connections = connections
        self._relayed: dict[str, http.HTTPFlow] = {}
        self._origin: Origin | None = None
        self._rules: RulesInForce | None = None
        self._inputs: FilterInputs | None = None
        self._backed: Backed | None = None

    def start(
        self, origin: Origin, rules: RulesInForce, inputs: FilterInputs, backed: Backed | None = None
    ) -> None:
        """Take what a decision needs; requests that come earlier are refused. Without `backed` nothing is kept."""
        self._origin, self._rules, self._inputs, self._backed = origin, rules, inputs, backed

    def rules_changed(self, rules: Rules) -> None:
        """End the relayed watches that the rules now filter: their clients come back to a view."""
        ended = [
            flow.server_conn
            for flow in self._relayed.values()
            if (exchange := exchange_of(flow)) is not None and _is_filtered(exchange, rules)
        ]
        self._connections.cut(lambda conn: conn in ended)

    @guarded
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        exchange = exchange_of(flow)
        if exchange is None:
            raise internal("the request was not resolved")
        if self._rules is None or self._origin is None:
            raise unavailable("the hub is starting", retry_after=1)
        if may_be_filtered(exchange.info, exchange.listener, self._rules.rules):
            await self._rules.wait_known(self._options.settings.wait)
        exchange.route = decide(
            exchange.info,
            exchange.component,
            exchange.caller,
            exchange.listener,
            exchange.accept,
            self._rules.rules,
            is_upgrade="upgrade" in flow.request.headers,
            standby=self._backed.standby if self._backed is not None else None,
        )
        flow.comment = f"{exchange.component}: {exchange.route.kind}, {exchange.route.reason}"
        if exchange.route.filters and exchange.route.kind is not Kind.VIEW:
            _ask_for(flow.request, exchange.route)
        if exchange.route.kind in (Kind.VIEW, Kind.LOCAL):
            self._redirect(flow, exchange)
        elif exchange.route.kind is Kind.BACKED:
            assert self._backed is not None
            if self._backed.is_sent(exchange.info):
                exchange.rescue = self._rescue
            else:
                self._redirect(flow, exchange)
        elif exchange.info.verb == "watch" and exchange.listener is not Listener.INTERNAL:
            self._relayed[flow.id] = flow

    @guarded
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        exchange = exchange_of(flow)
        if exchange is None or exchange.route is None or flow.response is None:
            return
        if exchange.ticket and (exchange.route.kind is Kind.VIEW or not exchange.route.filters):
            flow.response.stream = True
        elif (
            flow.id in self._relayed and self._rules is not None and _is_filtered(exchange, self._rules.rules)
        ):
            raise unavailable("the rules have changed meanwhile", retry_after=1)
        if flow.response.stream or (exchange.route.kind is Kind.RELAY and not exchange.route.filters):
            _count(exchange, flow.response.status_code)

    @guarded
    async def response(self, flow: http.HTTPFlow) -> None:
        self._relayed.pop(flow.id, None)
        exchange = exchange_of(flow)
        if exchange is None or flow.response is None:
            return
        if exchange.rescue is not None and self._backed is not None:
            self._backed.passed(exchange, flow.request, flow.response)
        try:
            if _is_to_be_filtered(flow, exchange):
                await self._filter(flow.response, exchange)
            _count(exchange, flow.response.status_code)
        except StatusError as error:
            _count(exchange, error.code)
            raise

    @guarded
    def error(self, flow: http.HTTPFlow) -> None:
        self._relayed.pop(flow.id, None)
        exchange = exchange_of(flow)
        if exchange is not None:
            if self._origin is not None:
                self._origin.void(exchange.ticket)
            _count(exchange, 499 if flow.error is not None and "disconnect" in flow.error.msg else 502)

    def _rescue(self, flow: http.HTTPFlow) -> None:
        """The server failed under a request that the node can answer."""
        exchange = exchange_of(flow)
        assert exchange is not None
        exchange.was_sent = True
        if exchange.caller.lending is Lending.HUB:
            flow.request.headers.pop("authorization", None)  # lent for the server that failed
        self._redirect(flow, exchange)

    def _redirect(self, flow: http.HTTPFlow, exchange: Exchange) -> None:
        assert self._origin is not None
        exchange.ticket = self._origin.ticket(exchange)
        flow.request.scheme = "http"
        flow.request.data.host, flow.request.data.port = self._origin.address
        if exchange.route is None or exchange.route.kind is Kind.VIEW:
            # The origin has the exchange and needs no header; mitmproxy itself reads whether to close the connection.
            connection = flow.request.headers.get_all("connection")
            flow.request.headers = http.Headers(host="origin")
            flow.request.headers.set_all("connection", connection)
        flow.request.headers[TICKET_HEADER] = exchange.ticket

    async def _filter(self, response: http.Response, exchange: Exchange) -> None:
        """Put what the filters make of the object into the response, or 404 where they hide it."""
        route = exchange.route
        assert route is not None
        assert route.representation is not None
        assert exchange.info.type is not None
        codec = codec_for(Encoding(response.headers.get("Content-Type", "").partition(";")[0].strip()))
        api_version, kind, raw = codec.decode_single(response.content or b"")
        try:
            async with asyncio.timeout(self._options.settings.wait):
                filtered = await self._judge(codec, api_version, kind, raw, route)
        except TimeoutError:
            raise unavailable("an input of the filters is not known yet", retry_after=1) from None
        if filtered is None:
            raise not_found(exchange.info.type.group_resource, exchange.info.name)
        if route.representation.kind == METADATA_KIND:
            body = codec.encode_single("meta.k8s.io/v1", METADATA_KIND, codec.metadata_only(filtered))
        elif filtered != raw:
            body = codec.encode_single(api_version, kind, filtered)
        else:
            return
        response.content = body

    async def _judge(
        self, codec: Codec, api_version: str, kind: str, raw: bytes, route: Route
    ) -> bytes | None:
        assert self._inputs is not None
        while True:
            asked = self._inputs.ask()
            obj = decode_object(codec.encoding, api_version, kind, raw)
            verdict = apply_chain(route.filters, obj, asked)
            if not asked.pending:
                return None if verdict.outcome is Outcome.DROPPED else obj.encode()
            await self._inputs.learned.wait()


def _is_to_be_filtered(flow: http.HTTPFlow, exchange: Exchange) -> bool:
    """Whether the response is a single object, whole, that a filter must see first. A HEAD's answer has no body."""
    if exchange.route is None or exchange.route.kind is Kind.VIEW or not exchange.route.filters:
        return False
    return flow.response is not None and flow.response.status_code == 200 and flow.request.method != "HEAD"


def _is_filtered(exchange: Exchange, rules: Rules) -> bool:
    asked = exchange.info.type
    return asked is not None and bool(rules.chain(exchange.component, asked.group, asked.resource, "watch"))


def _ask_for(request: http.Request, route: Route) -> None:
    """The object must come whole and unpacked, or it could not be filtered."""
    assert route.representation is not None
    protobuf = route.representation.encoding is Encoding.PROTOBUF
    request.headers["Accept"] = f"{Encoding.PROTOBUF},{Encoding.JSON}" if protobuf else Encoding.JSON
    request.headers.pop("Accept-Encoding", None)


def _count(exchange: Exchange, code: int) -> None:
    if exchange.counted or exchange.route is None:
        return
    exchange.counted = True
    info = exchange.info
    resource = info.type.resource if info.type is not None else ""
    metrics.REQUESTS.labels(
        metrics.component_label(exchange.component), info.verb, resource, exchange.route.kind, code
    ).inc()
