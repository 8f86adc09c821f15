"""Filters the object in the cloud's answer to a GET that is not answered from a view."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from mitmproxy import http

from addons.filters.chain import apply_chain
from addons.filters.filter import Filter
from addons.filters.verdict import Outcome
from addons.inputs.filter_inputs import FilterInputs
from addons.offline.cached_response import CachedResponse
from addons.requests.caller import Listener
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import Route, RouteKind
from addons.rules.in_force import RulesInForce
from addons.views.tables.single_object import single_object
from addons.views.tally import tallies_of_one
from kube.errors import internal, not_found, unavailable
from kube.json_type import Json
from kube.tables.cloud_cells import CloudCells
from kube.tables.server_table import is_known
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json
from kube.wire.negotiation import TABLE_KIND


class FilteredGets:
    """Applies the rules in force to single objects."""

    def __init__(self, rules: RulesInForce, inputs: FilterInputs, wait: float) -> None:
        """`wait`: seconds that a request waits for the rules, and for the inputs of its filters."""
        self.rules = rules
        self._inputs = inputs
        self.wait = wait

    def filters(self, context: RequestContext) -> tuple[Filter, ...]:
        """Return the filters that the rules in force bind to a client's read."""
        type_ = context.info.type
        if type_ is None or context.info.subresource or context.listener is Listener.PEER:
            return ()
        return self.rules.rules.bindings.chain(
            context.component, type_.group, type_.resource, context.info.verb
        )

    async def filter(
        self, response: http.Response, context: RequestContext, sent: Encoded, cells: CloudCells | None
    ) -> None:
        """Replace the response's object, which is `sent`, with its filtered form; `cells` are the cloud's, if it sent a
        Table. StatusError 404 if the filters hide the object, 503 if an input of the filters stays unknown.
        """
        route = context.route
        assert route is not None
        assert route.representation is not None
        assert context.info.type is not None
        try:
            async with asyncio.timeout(self.wait):
                filtered = await self._filtered(sent, context)
        except TimeoutError:
            raise unavailable("an input of the filters is not known yet", retry_after=1) from None
        if filtered is None:
            raise not_found(context.info.type.group_resource, context.info.name)
        made = single_object(sent._replace(raw=filtered), route.representation, route.read, cells)
        if made != sent:
            response.content, response.headers["Content-Type"] = made.body(), made.codec.content_type

    async def _filtered(self, sent: Encoded, context: RequestContext) -> bytes | None:
        """Filter an object by the rules in force; return None if they hide it."""
        while True:
            recorded = self._inputs.ask()
            with _refusing_unreadable():
                obj = sent.decode()
            verdict = apply_chain(self.filters(context), obj, recorded)
            if not recorded.pending:
                context.served.filters = tallies_of_one(verdict.steps)
                return None if verdict.outcome is Outcome.DROPPED else obj.encode()
            await self._inputs.learned.wait()


def is_filtered_get(flow: http.HTTPFlow, context: RequestContext) -> bool:
    """Whether the response is a complete single object to which filters apply. The answer to a HEAD has no body to
    filter.
    """
    if context.route is None or context.route.kind is RouteKind.VIEW or not context.route.filtered_by:
        return False
    return flow.response is not None and flow.response.status_code == 200 and flow.request.method != "HEAD"


def ask_for_object(request: http.Request, route: Route, *, with_cells: bool) -> None:
    """Request the complete object, uncompressed, because filters need both. `with_cells`: the cloud is asked, and adds
    the cells of a Table whose columns only it knows.
    """
    assert route.representation is not None
    protobuf = route.representation.encoding is Encoding.PROTOBUF
    request.headers["Accept"] = f"{Encoding.PROTOBUF},{Encoding.JSON}" if protobuf else Encoding.JSON
    if route.representation.kind == TABLE_KIND and route.read is not None:
        request.query.pop("includeObject", None)
        if with_cells and not is_known(route.read.type):
            version = route.representation.version
            table = f"application/json;as=Table;v={version};g=meta.k8s.io"
            request.headers["Accept"] = f"{table},{Encoding.JSON}"
            request.query["includeObject"] = "Object"
    request.headers.pop("Accept-Encoding", None)


def take_object(response: http.Response) -> tuple[Encoded, CloudCells | None]:
    """Return the object in the cloud's answer; of a Table of one row also the cells, and replace it by its object,
    which the hub stores and filters. StatusError if the answer has no object.
    """
    with _refusing_unreadable():
        # The cloud may compress against the request; `response.content` would decompress any amount.
        sent = CachedResponse(response.headers, response.raw_content or b"").single()
        if sent.kind != TABLE_KIND:
            return sent, None
        cells = CloudCells()
        cells.learn(sent.raw)
        table: Json = parse_object(sent.raw)
        obj = table["rows"][0]["object"]
        response.content = raw = write_json(obj)
        return Encoded(sent.codec, obj["apiVersion"], obj["kind"], raw), cells


@contextmanager
def _refusing_unreadable() -> Iterator[None]:
    """Raise StatusError if the cloud's answer cannot be parsed, so that it is never returned unfiltered."""
    try:
        yield
    except (ValueError, LookupError, TypeError) as error:
        raise internal(f"the cloud's answer cannot be parsed, so it cannot be filtered: {error}") from error
