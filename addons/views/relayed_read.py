"""A list or watch that the hub answers with the cloud's own words, piece by piece, and keeps nothing of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from addons.requests.object_read import ObjectRead
from addons.views.responses import HEADERS
from kube.errors import unavailable
from kube.http.client import Client, Unreachable
from kube.wire.negotiation import Representation

LONGEST = 3600.0
"""Seconds that such a watch may last; kube-apiserver ends one after an hour at the latest."""


class Relay:
    """One such read under way. It ends as soon as the rules filter what it reads."""

    def __init__(self, is_filtered: Callable[[], bool]) -> None:
        self.is_filtered = is_filtered
        self.time = asyncio.timeout(None)

    def end(self) -> None:
        self.time.reschedule(asyncio.get_running_loop().time())


class Relays:
    """All such reads under way. The cloud bounds them: each is a stream of the hub's connection."""

    def __init__(self) -> None:
        self._open: dict[Relay, None] = {}

    @contextmanager
    def open(self, is_filtered: Callable[[], bool]) -> Iterator[Relay]:
        relay = Relay(is_filtered)
        self._open[relay] = None
        try:
            yield relay
        finally:
            del self._open[relay]

    def end_filtered(self) -> None:
        for relay in list(self._open):
            if relay.is_filtered():
                relay.end()


async def relayed_read(
    client: Client, read: ObjectRead, request: web.BaseRequest, relay: Relay
) -> web.StreamResponse:
    """The cloud's answer to the request's target, until `relay` is ended.

    StatusError: the cloud's refusal, or 503 where there is no answer.
    """
    accept = ",".join(map(_media_type, read.accepted))
    response = web.StreamResponse(headers=HEADERS)
    try:
        async with (
            relay.time,
            client.watch(request.raw_path, query={}, accept=accept, timeout=LONGEST) as stream,
        ):
            response.content_type = stream.content_type
            response.enable_chunked_encoding()
            await response.prepare(request)
            async for chunk in stream.chunks:
                await response.write(chunk)
    except (Unreachable, TimeoutError) as error:
        if not response.prepared:
            why = (
                "the rules have changed meanwhile" if relay.time.expired() else "the cloud cannot be reached"
            )
            raise unavailable(f"{why}: {error}" if str(error) else why, retry_after=1) from error
        # What has been written is no whole answer, and the client must not take it for one.
        if request.transport is not None:
            request.transport.abort()
    return response


def _media_type(form: Representation) -> str:
    return (
        f"{form.encoding};as={form.kind};g={form.group};v={form.version}" if form.kind else str(form.encoding)
    )
