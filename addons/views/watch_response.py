"""A watch as an answer: the state of a view, then its events, until the client leaves or the time is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from aiohttp import web

from addons.requests.object_read import ObjectRead
from addons.telemetry import metrics
from addons.views.responses import HEADERS
from kube.errors import StatusError
from kube.store.view import View, Watcher
from kube.wire.codec_base import in_pieces

MIN_WATCH = 1800.0
"""Seconds (and up to twice as many) that a watch without timeoutSeconds lasts, as kube-apiserver's default."""
SHORTEST_WATCH = 1.0
"""Seconds. client-go takes a watch that ended earlier, without an event, for a failure and lists anew."""


async def watch_response(view: View, read: ObjectRead, request: web.BaseRequest) -> web.StreamResponse:
    """Send the watcher's events until it ends. The watcher alone makes bookmarks: it knows what it has sent."""
    try:
        if read.wants_state:
            watcher = view.watch_list(bookmarks=read.bookmarks)
        else:
            watcher = view.watch(read.version or None, bookmarks=read.bookmarks)
    except StatusError as error:
        return await _error_stream(view, error, request)
    resource = read.type.group_resource
    response = _stream(view)
    seconds = max(read.timeout_seconds or MIN_WATCH * (1 + random.random()), SHORTEST_WATCH)
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
