"""Answers with a watch: the state of a view, then its events, until the client leaves or its time is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping

from addons.requests.answers import ClientStream, headers_of
from addons.requests.object_read import ObjectRead
from addons.telemetry import metrics
from addons.telemetry.labels import group_resource_label
from kube.errors import StatusError
from kube.store.stream_coding import PLAIN, StreamCoding
from kube.store.view import View
from kube.store.watcher import Watcher
from kube.wire.codec_base import in_pieces

MIN_WATCH = 1800.0
"""Minimum seconds (maximum twice as many) of a watch without timeoutSeconds, kube-apiserver's default."""
CHECK_INTERVAL = (10.0, 18.0)
"""Seconds between two checks of the permission of an open watch, spread so that not all watches check at once.

The longest interval and `addons.views.reviews.PERMISSION_TTL` together are less than a minute.
"""
SHORTEST_WATCH = 1.0
"""Minimum seconds of a watch. client-go treats one that ended earlier, without an event, as a failure and lists
again."""


async def watch_answer(
    view: View,
    read: ObjectRead,
    stream: ClientStream,
    check: Callable[[], Awaitable[None]] | None,
    confirmed: int = 0,
    coding: StreamCoding = PLAIN,
    opened: Callable[[Watcher], None] | None = None,
    warning: str = "",
) -> None:
    """Send the watcher's events until it ends. Only the watcher makes bookmarks, because it knows which events it has
    sent.

    `check` raises a StatusError once the client may no longer read this, which ends the watch; None for the node's own
    components. `confirmed` is a version at which the cloud has the view's state, 0 for none. `opened` receives the
    watcher.
    """
    if (read.timeout_seconds or 0) < 0:
        await stream.begin(_headers(view, coding, warning))
        return  # as from kube-apiserver: its time is over before it has begun
    try:
        if read.wants_state:
            watcher = view.watch_list(confirmed, bookmarks=read.bookmarks, coding=coding)
        else:
            watcher = view.watch(read.version or None, confirmed, bookmarks=read.bookmarks, coding=coding)
    except StatusError as error:
        await stream.begin(_headers(view, coding, warning))
        # An error of the watch itself comes as its only event, as from kube-apiserver's watch cache.
        await stream.write(coding.frame(view.codec.encode_error(error)))
        return
    if opened is not None:
        opened(watcher)
    stream = _HeadedStream(stream, view.headed) if view.form.is_headed else stream
    resource = group_resource_label(read.type.group, read.type.resource)
    seconds = max(read.timeout_seconds or MIN_WATCH * (1 + random.random()), SHORTEST_WATCH)
    timer = asyncio.get_running_loop().call_later(seconds, watcher.end)
    metrics.WATCHERS.labels(resource).inc()
    checking = (
        asyncio.create_task(_end_when_refused(watcher, check), name="rights of a watch") if check else None
    )
    try:
        await stream.begin(_headers(view, coding, warning))
        await stream.write_all(coding.state(watcher.initial_events()))
        watcher.try_write = stream.try_write
        await _follow(watcher, stream)
    finally:
        timer.cancel()
        if checking is not None:
            checking.cancel()
        watcher.end()
        watcher.try_write = None
        metrics.WATCHERS.labels(resource).dec()
        if watcher.fell_behind:
            metrics.SLOW_WATCHERS.labels(resource).inc()


async def _end_when_refused(watcher: Watcher, check: Callable[[], Awaitable[None]]) -> None:
    """End a watch with the cloud's refusal, soon after its client has lost the right to it."""
    while not watcher.ended:
        await asyncio.sleep(random.uniform(*CHECK_INTERVAL))
        try:
            await check()
        except StatusError as error:
            watcher.end(error)


async def _follow(watcher: Watcher, stream: ClientStream) -> None:
    """Write events until the watch ends; an error is its last event."""
    try:
        while frames := await watcher.frames():
            await stream.write_all(map(b"".join, in_pieces(frames)))
            del frames  # for as long as no event comes
    except StatusError as error:
        await stream.write(watcher.coding.frame(watcher.view.codec.encode_error(error)))


def _headers(view: View, coding: StreamCoding, warning: str) -> dict[str, str]:
    encoding = {"Content-Encoding": coding.name} if coding.name else {}
    return headers_of(view.codec.watch_content_type, warning) | encoding


class _HeadedStream(ClientStream):
    """Adds a head to the first piece by `headed`, and writes all pieces by `write`: people read Tables, so speed does
    not matter."""

    try_write = None

    def __init__(self, stream: ClientStream, headed: Callable[[bytes], bytes]) -> None:
        self._stream = stream
        self._headed: Callable[[bytes], bytes] | None = headed

    async def begin(self, headers: Mapping[str, str]) -> None:
        await self._stream.begin(headers)

    async def write(self, data: bytes) -> None:
        await self._stream.write(self._completed(data))

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        await self._stream.write_all(map(self._completed, pieces))

    def _completed(self, piece: bytes) -> bytes:
        headed, self._headed = self._headed, None
        return piece if headed is None else headed(piece)
