"""Sends an answer after the addons have seen it: streamed piece by piece, or buffered until it is complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from mitmproxy import http

from addons.offline.cached_response import MAX_CACHED
from addons.requests.answers import Answer, Answerer, ClientLeft, status_answer
from addons.requests.request_context import RequestContext, context_of
from addons.requests.websocket_watch import WebSocketWatch
from addons.server import flow_hooks
from addons.server.limits.client_addresses import STREAM_UNREAD
from addons.server.limits.request_bodies import BODY_TIME
from addons.server.messages import SWITCHING_PROTOCOLS, WITHOUT_BODY, response_of_answer
from addons.server.request import AnswerFields, ServedRequest
from addons.telemetry import metrics
from kube.bounds import reached
from kube.errors import StatusError, internal
from kube.wire.codec_base import CHUNK

PIECES_PER_STEP = 4
"""Pieces sent to a client that reads as fast as the hub writes, before other tasks run: half a millisecond."""


class Replaced(Exception):
    """Raised when an addon has set another response in the flow."""


class Sending:
    """Sends one answer to its client, whether a server or the hub made it."""

    def __init__(self, request: ServedRequest, flow: http.HTTPFlow) -> None:
        self.request, self.flow = request, flow
        self.is_streamed = self._is_switched = False
        self._buffer = bytearray()
        self._counted = 0

    async def begin(self, response: http.Response) -> None:
        """Pass the head to the addons, and send it at once if they enable streaming. Replaced if they set another
        response.
        """
        self.flow.response = response
        await flow_hooks.responseheaders(self.request, self.flow)
        if self.flow.response is not response:
            raise Replaced
        if response.stream:
            self._stream(response)

    def _stream(self, response: http.Response) -> None:
        self.is_streamed = True
        self.request.send_head(response.status_code, response.headers.fields)

    async def switch(self, response: http.Response) -> None:
        """Pass a 101 to the addons and send it. Later bytes belong to another protocol: addons do not see them."""
        self.flow.response = response
        await flow_hooks.responseheaders(self.request, self.flow)
        if self.flow.response is not response:
            raise Replaced
        await flow_hooks.response_complete(self.request, self.flow)
        self.request.switch(response.headers.fields)
        self._is_switched = True

    async def write(self, piece: bytes) -> None:
        if self._is_switched:
            await self.request.send(piece)
            return
        if self.is_streamed:
            for part in self._through_addons(piece):
                await self.request.send(part)
            return
        self._buffer += piece
        if not self._may_buffer(len(self._buffer)):
            await self._stop_buffering()

    def write_now(self, piece: bytes) -> bool:
        """Send a piece if the client has space for it; return whether it was sent. Addons see each piece once: here, or
        in `write` if this returns False."""
        if not self.is_streamed or not self.request.can_send(len(piece)):
            return False
        for part in self._through_addons(piece):
            self.request.send_now(part)
        return True

    async def end(self, trailers: AnswerFields = ()) -> None:
        assert self.flow.response is not None
        if not self.is_streamed:
            self.flow.response.data.content = bytes(self._buffer)
            self._buffer.clear()
            await send_complete(self.request, self.flow)
            return
        if callable(self.flow.response.stream):
            for part in self._through_addons(b""):
                await self.request.send(part)
        await flow_hooks.response_complete(self.request, self.flow)
        self.request.end(trailers)

    def _through_addons(self, piece: bytes) -> Iterable[bytes]:
        # An addon may set `stream` at any time: it gets all later pieces.
        assert self.flow.response is not None
        return apply_stream_function(self.flow.response.stream, piece)

    def release(self) -> None:
        """Uncount the buffered bytes."""
        if self._counted:
            self._may_buffer(0)

    def _may_buffer(self, size: int) -> bool:
        if size > MAX_CACHED or not self.request.address.resize_answer(self._counted, size):
            return False
        self._counted = size
        return True

    async def _stop_buffering(self) -> None:
        """Switch from buffering to streaming for an answer that is too large; abort it if it must be buffered."""
        reached("held answer")
        context = context_of(self.flow)
        assert context is not None
        context.failover = None
        if context.stream_too_large is None:
            raise ConnectionResetError(
                f"the response exceeds {MAX_CACHED} bytes, or the hub buffers too many"
            )
        assert self.flow.response is not None
        self.flow.response.stream = context.stream_too_large
        self._stream(self.flow.response)
        buffered = bytes(self._buffer)
        self._buffer.clear()
        self.release()
        await self.write(buffered)


async def send_complete(request: ServedRequest, flow: http.HTTPFlow) -> None:
    """Pass a complete answer to the addons, then send it."""
    assert flow.response is not None
    await flow_hooks.response_complete(request, flow)
    response = flow.response
    body = b"" if response.status_code in WITHOUT_BODY else response.raw_content or b""
    if request.is_head or len(body) <= STREAM_UNREAD:
        await request.send_response(response.status_code, response.headers.fields, body)
        return
    try:
        async with asyncio.timeout(BODY_TIME):
            await send_long(request, response.status_code, response.headers.fields, body)
    except TimeoutError:
        metrics.UNREAD_STREAMS.inc()
        request.abort()


async def send_long(request: ServedRequest, status: int, fields: AnswerFields, body: bytes) -> None:
    """Send a complete answer piece by piece, with back-pressure from the client."""
    others = [field for field in fields if field[0].lower() != b"content-length"]
    request.send_head(status, [*others, (b"Content-Length", b"%d" % len(body))])
    for piece in in_pieces(body):
        await request.send(piece)
    request.end()


async def send_status(request: ServedRequest, flow: http.HTTPFlow, error: StatusError) -> None:
    """Answer with a Status, which the addons see like any answer."""
    await _send_answer(Sending(request, flow), status_answer(error))


async def respond(
    request: ServedRequest, flow: http.HTTPFlow, context: RequestContext, answerer: Answerer
) -> None:
    """Answer a request locally. RelayToCloud if a server must answer it instead; nothing is sent then."""
    stream = OwnStream(Sending(request, flow))
    socket = WebSocketWatch(stream, context.websocket) if context.websocket is not None else None
    try:
        answer = await answerer.answer(context.client_request(flow.request), socket or stream)
        if answer is not None:
            await _send_answer(stream.sending, answer)
        elif not stream.has_begun:
            raise internal("no component answers this request")
        else:
            await (socket or stream).end()
    except asyncio.CancelledError:
        if socket is None or not socket.is_closing:
            raise
        await socket.end()
    finally:
        stream.release()
        if socket is not None:
            socket.stop_pongs()


class OwnStream:
    """Implementation of `addons.requests.answers.ClientStream` for the hub's own answers."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.has_begun = False
        self._reader: asyncio.Task[None] | None = None
        """Task that reads the client's bytes after a 101."""
        self.try_write: Callable[[bytes], bool] | None = None

    async def begin(self, headers: Mapping[str, str]) -> None:
        self.has_begun = True
        await self.sending.begin(response_of_answer(200, headers.items()))
        if self.sending.is_streamed:
            self.try_write = self.sending.write_now

    async def write(self, data: bytes) -> None:
        if self.try_write is not None and self.try_write(data):
            return
        await self.sending.request.writable()
        await self.sending.write(data)

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        await _send_pieces(self.sending, pieces)

    async def switch(self, headers: Mapping[str, str], receive: Callable[[bytes], None]) -> None:
        """See `addons.requests.websocket_watch.SwitchedStream.switch`."""
        self.has_begun = True
        await self.sending.switch(response_of_answer(SWITCHING_PROTOCOLS, headers.items()))
        self._reader = asyncio.create_task(self._read_client(receive), name="upgraded connection")

    async def _read_client(self, receive: Callable[[bytes], None]) -> None:
        with contextlib.suppress(ClientLeft):
            while data := await self.sending.request.read():
                receive(data)

    async def end(self, last: bytes = b"") -> None:
        """See `addons.requests.websocket_watch.SwitchedStream.end`."""
        if self._reader is None:
            await self.sending.end()
        elif last:
            self.sending.request.send_now(last)

    def release(self) -> None:
        """Drop the buffer, and stop reading from the client."""
        self.sending.release()
        if self._reader is not None:
            self._reader.cancel()


async def _send_answer(sending: Sending, answer: Answer) -> None:
    """Send a complete answer that the hub made itself."""
    body, fields = answer.body, [*answer.headers.items()]
    if isinstance(body, bytes) and answer.status not in WITHOUT_BODY:
        fields.append(("Content-Length", str(len(body))))
    await sending.begin(response_of_answer(answer.status, fields))
    if not sending.request.is_head:
        await _send_pieces(sending, in_pieces(body) if isinstance(body, bytes) else body)
    await sending.end()


async def _send_pieces(sending: Sending, pieces: Iterable[bytes]) -> None:
    rest = iter(pieces)
    for number in count():
        # Encode the next piece only when the client has space: hundreds of streams may wait for slow clients.
        await sending.request.writable()
        piece = next(rest, None)
        if piece is None:
            return
        if number and not number % PIECES_PER_STEP:
            # A fast client never makes `writable` wait, so yield to other tasks here.
            await asyncio.sleep(0)
        await sending.write(piece)
        del piece  # frees the memory while a slow client waits


def apply_stream_function(change: object, piece: bytes) -> Iterable[bytes]:
    """Return the pieces into which an addon's `stream` function changes a piece of a body."""
    made = change(piece) if callable(change) else piece
    return (made,) if isinstance(made, bytes) else made


def in_pieces(body: bytes) -> Iterable[bytes]:
    return (body,) if len(body) <= CHUNK else (body[at : at + CHUNK] for at in range(0, len(body), CHUNK))
