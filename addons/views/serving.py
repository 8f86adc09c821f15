"""Answers lists and watches from views, as a kube-apiserver would; finds the source that a caller may see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from aiohttp import web

from addons.requests.caller import Lending
from addons.requests.client_request import ClientRequest
from addons.rules.table import Rules
from addons.telemetry import metrics
from addons.views.consistent_list import wait_until_current
from addons.views.list_response import list_response
from addons.views.responses import HEADERS
from addons.views.reviews import Reviews
from addons.views.source import Source, ViewKey
from addons.views.sources import Sources
from kube.errors import StatusError, expired, not_acceptable, too_large_version, unauthorized
from kube.requests.request_info import RequestInfo, ResourceType
from kube.requests.resource_versions import parse_version
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.store.reflector import ListWatch
from kube.store.scope import Scope
from kube.store.view import View, Watcher
from kube.wire.codec_base import in_pieces
from kube.wire.negotiation import METADATA_KIND, Representation, acceptable

SHARED = {
    ("", "services"): frozenset({"metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"}),
    ("", "endpoints"): frozenset({"metadata.name", "metadata.namespace"}),
    ("discovery.k8s.io", "endpointslices"): frozenset({"metadata.name", "metadata.namespace"}),
}
"""What every node reads in whole, with the fields that its field selectors may name. One source serves all callers."""
FUTURE_WAIT = 3.0
"""Seconds a list waits for a version of the future, as kube-apiserver's watch cache."""
MIN_WATCH = 1800.0
"""Seconds (and up to twice as many) that a watch without timeoutSeconds lasts, as kube-apiserver's default."""
SHORTEST_WATCH = 1.0
"""Seconds. client-go takes a watch that ended earlier, without an event, for a failure and lists anew."""


class Serving:
    """Answers the lists and watches that the router sends to views."""

    def __init__(self, sources: Sources, reviews: Reviews, rules: Callable[[], Rules], wait: float) -> None:
        self._sources = sources
        self._reviews = reviews
        self._rules = rules
        self._wait = wait

    async def answer(self, wanted: ClientRequest, request: web.BaseRequest) -> web.StreamResponse:
        """The whole answer to a list, or a watch until its end. StatusError where that is the answer."""
        info, route = wanted.info, wanted.route
        assert info.type is not None
        assert route.representation is not None
        source, scope = await self._source(wanted, info, route.representation)
        with source.in_use():
            at_least = await self._prepare(source, wanted, scope)
            _check_encoding(source, route.representation, wanted.accept)
            verb = verb_of_view(self._rules(), wanted.component, info.type, info.verb)
            key = ViewKey(wanted.component, verb, scope, route.representation.kind == METADATA_KIND)
            view = await source.view(key, route.filters, self._wait)
            if info.verb == "list":
                return await list_response(view.listing(at_least))
            return await self._watch(view, info, request)

    async def _source(
        self, wanted: ClientRequest, info: RequestInfo, representation: Representation
    ) -> tuple[Source, Scope]:
        """The source whose answers this caller may have, and what of it was asked for."""
        assert info.type is not None
        labels = parse_label_selector(info.options.label_selector)
        fields = parse_field_selector(info.options.field_selector)
        keep = self._rules().is_cached(wanted.component)
        own = wanted.caller.authorization
        if wanted.caller.lending is not Lending.HUB and not own:
            raise unauthorized("Unauthorized")
        evaluable = SHARED.get((info.type.group, info.type.resource))
        if evaluable is not None and fields.fields <= evaluable:
            if own:
                await self._reviews.may_read(own, info)
            list_watch = ListWatch(info.type, encoding=representation.encoding)
            return self._sources.get("", list_watch, keep=keep), Scope(info.namespace, labels, fields)
        identity = await self._reviews.user(own) if own else ""
        list_watch = ListWatch(
            info.type, info.namespace, labels.canonical, fields.canonical, encoding=representation.encoding
        )
        everything = Scope("", parse_label_selector(""), parse_field_selector(""))
        return self._sources.get(identity, list_watch, own, keep=keep), everything

    async def _prepare(self, source: Source, wanted: ClientRequest, scope: Scope) -> int:
        """Wait until the source is as new as the request asks; the version that its list may then carry."""
        info = wanted.info
        await source.ready(self._wait)
        if wanted.route.fresh:
            return await self._fresh(source, info, scope)
        version = parse_version(info.options.resource_version)
        if info.verb == "watch" and not _wants_state(info):
            return 0
        try:
            await source.ready(FUTURE_WAIT, version)
        except StatusError as error:
            if error.code != 503 or not source.store.complete:
                raise
            raise too_large_version(version, source.store.version) from None
        if info.options.resource_version_match == "Exact" and source.store.version != version:
            raise expired(f"The resourceVersion for the provided list is too old: {version}")
        return 0

    async def _fresh(self, source: Source, info: RequestInfo, scope: Scope) -> int:
        """As new as the cloud is; without a cloud, as new as it was."""
        if not source.is_up():
            return 0
        try:
            return await wait_until_current(source, source.client, info, scope, self._wait)
        except StatusError as error:
            # 502: the hub's own word for a server that died under the request.
            if error.code not in (502, 503) or source.is_up():
                raise
            return 0

    async def _watch(self, view: View, info: RequestInfo, request: web.BaseRequest) -> web.StreamResponse:
        """Send the watcher's events until it ends. The watcher alone makes bookmarks: it knows what it has sent."""
        options = info.options
        try:
            if _wants_state(info):
                watcher = view.watch_list(bookmarks=options.allow_bookmarks)
            else:
                since = parse_version(options.resource_version) or None
                watcher = view.watch(since, bookmarks=options.allow_bookmarks)
        except StatusError as error:
            return await _error_stream(view, error, request)
        resource = info.type.group_resource if info.type is not None else ""
        response = _stream(view)
        seconds = max(options.timeout_seconds or MIN_WATCH * (1 + random.random()), SHORTEST_WATCH)
        timer = asyncio.get_running_loop().call_later(seconds, watcher.end)
        metrics.WATCHERS.labels(resource).inc()
        try:
            await response.prepare(request)
            await _write(response, watcher.initial_events())
            await _follow(watcher, response)
        except ConnectionError:
            pass  # the client left while something was written to it
        finally:
            timer.cancel()
            watcher.end()
            metrics.WATCHERS.labels(resource).dec()
            if watcher.fell_behind:
                metrics.SLOW_WATCHERS.labels(resource).inc()
        return response


def verb_of_view(rules: Rules, component: str, asked: ResourceType, verb: str) -> str:
    """Lists and watches share a view (and its history) unless the rules filter them differently."""
    named = (component, asked.group, asked.resource)
    return "watch" if rules.chain(*named, "list") == rules.chain(*named, "watch") else verb


async def _follow(watcher: Watcher, response: web.StreamResponse) -> None:
    """Write events until the watch ends; an error is the last of them."""
    try:
        while frames := await watcher.frames():
            await _write(response, frames)
    except StatusError as error:
        await response.write(watcher.view.codec.encode_error(error))


async def _error_stream(view: View, error: StatusError, request: web.BaseRequest) -> web.StreamResponse:
    """An error of the watch itself comes as its only event, as from kube-apiserver's watch cache."""
    response = _stream(view)
    await response.prepare(request)
    await response.write(view.codec.encode_error(error))
    return response


def _stream(view: View) -> web.StreamResponse:
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": view.codec.watch_content_type})
    response.enable_chunked_encoding()
    return response


async def _write(response: web.StreamResponse, frames: Iterable[bytes]) -> None:
    for number, piece in enumerate(in_pieces(frames)):
        if number:
            # A client that reads as fast as the hub writes never makes it wait.
            await asyncio.sleep(0)
        await response.write(b"".join(piece))


def _wants_state(info: RequestInfo) -> bool:
    """Whether the answer begins with the state: `sendInitialEvents` says so or, where it is silent, the version."""
    wanted = info.options.send_initial_events
    if wanted is None:
        wanted = info.options.resource_version in ("", "0")
    return info.verb == "list" or wanted


def _check_encoding(source: Source, representation: Representation, accept: str | None) -> None:
    """A kind that the cloud has no protobuf for comes as JSON, if the client takes that too."""
    found = source.store.codec.encoding
    if found is not representation.encoding and found not in {each.encoding for each in acceptable(accept)}:
        raise not_acceptable(f"only {found} is available for {source.list_watch.type.group_resource}")
