"""Sends an answer as the addons leave it: streamed as it is made, or held until it is complete."""

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
from addons.server.messages import SWITCHED, WITHOUT_BODY, response_of_answer
from addons.server.request import AnswerFields, ServedRequest
from addons.telemetry import metrics
from kube.bounds import reached
from kube.errors import StatusError, internal
from kube.wire.codec_base import PIECE

WRITTEN_AT_ONCE = 4
"""Pieces of an answer that are sent before other tasks run, where the client reads as fast: half a millisecond."""


class Replaced(Exception):
    """The addons replace the present answer: the flow has theirs."""


class Sending:
    """One answer on its way to the client, from any answerer."""

    def __init__(self, request: ServedRequest, flow: http.HTTPFlow) -> None:
        self.request, self.flow = request, flow
        self.is_streamed = self._is_switched = False
        self._held = bytearray()
        self._counted = 0

    async def begin(self, response: http.Response) -> None:
        """Show the addons the head. It is sent at once if they have the body streamed. Replaced if they answer."""
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
        """Show the addons a 101 and send it. The bytes behind it are of another protocol, and pass the addons by."""
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
            for part in self._changed(piece):
                await self.request.send(part)
            return
        self._held += piece
        if not self._may_hold(len(self._held)):
            await self._hold_no_longer()

    def write_now(self, piece: bytes) -> bool:
        """Send a piece if there is space for it. The addons see it once, whether it is sent now or by `write`."""
        if not self.is_streamed or not self.request.can_send(len(piece)):
            return False
        for part in self._changed(piece):
            self.request.send_now(part)
        return True

    async def end(self, trailers: AnswerFields = ()) -> None:
        assert self.flow.response is not None
        if not self.is_streamed:
            self.flow.response.data.content = bytes(self._held)
            self._held.clear()
            await send_complete(self.request, self.flow)
            return
        if callable(self.flow.response.stream):
            for part in self._changed(b""):
                await self.request.send(part)
        await flow_hooks.response_complete(self.request, self.flow)
        self.request.end(trailers)

    def _changed(self, piece: bytes) -> Iterable[bytes]:
        # An addon that inspects streams gets the pieces from then on.
        assert self.flow.response is not None
        return changed(self.flow.response.stream, piece)

    def release(self) -> None:
        """Uncount held bytes."""
        if self._counted:
            self._may_hold(0)

    def _may_hold(self, size: int) -> bool:
        if size > MAX_CACHED or not self.request.address.resize_answer(self._counted, size):
            return False
        self._counted = size
        return True

    async def _hold_no_longer(self) -> None:
        """Stream an answer that is too large to be held; break it off where it must be held."""
        reached("held answer")
        context = context_of(self.flow)
        assert context is not None
        context.failover = None
        if context.stream_too_large is None:
            raise ConnectionResetError(
                f"the response has more than {MAX_CACHED} bytes, or others have too many"
            )
        assert self.flow.response is not None
        self.flow.response.stream = context.stream_too_large
        self._stream(self.flow.response)
        held = bytes(self._held)
        self._held.clear()
        self.release()
        await self.write(held)


async def send_complete(request: ServedRequest, flow: http.HTTPFlow) -> None:
    """Send a complete answer, as the addons leave it."""
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
    """Send a complete answer piece by piece, as its client reads."""
    others = [field for field in fields if field[0].lower() != b"content-length"]
    request.send_head(status, [*others, (b"Content-Length", b"%d" % len(body))])
    for piece in in_pieces(body):
        await request.send(piece)
    request.end()


async def send_status(request: ServedRequest, flow: http.HTTPFlow, error: StatusError) -> None:
    """Answer with a Status that the addons see as any answer."""
    await _send_answer(Sending(request, flow), status_answer(error))


async def respond(
    request: ServedRequest, flow: http.HTTPFlow, context: RequestContext, answerer: Answerer
) -> None:
    """Answer locally. RelayToCloud where a server is to answer after all, and nothing was sent."""
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
            socket.let_go()


class OwnStream:
    """`addons.requests.answers.ClientStream`."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.has_begun = False
        self._taking: asyncio.Task[None] | None = None
        """Takes the client's bytes behind a 101."""
        self.outlet: Callable[[bytes], bool] | None = None

    async def begin(self, headers: Mapping[str, str]) -> None:
        self.has_begun = True
        await self.sending.begin(response_of_answer(200, headers.items()))
        if self.sending.is_streamed:
            self.outlet = self.sending.write_now

    async def write(self, data: bytes) -> None:
        if self.outlet is not None and self.outlet(data):
            return
        await self.sending.request.writable()
        await self.sending.write(data)

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        await _send_pieces(self.sending, pieces)

    async def switch(self, headers: Mapping[str, str], receive: Callable[[bytes], None]) -> None:
        """Like `addons.requests.websocket_watch.SwitchedStream.switch`."""
        self.has_begun = True
        await self.sending.switch(response_of_answer(SWITCHED, headers.items()))
        self._taking = asyncio.create_task(self._take(receive), name="upgraded connection")

    async def _take(self, receive: Callable[[bytes], None]) -> None:
        with contextlib.suppress(ClientLeft):
            while data := await self.sending.request.read():
                receive(data)

    async def end(self, last: bytes = b"") -> None:
        """Like `addons.requests.websocket_watch.SwitchedStream.end`."""
        if self._taking is None:
            await self.sending.end()
        elif last:
            self.sending.request.send_now(last)

    def release(self) -> None:
        """Drop the buffer, and accept nothing further."""
        self.sending.release()
        if self._taking is not None:
            self._taking.cancel()


async def _send_answer(sending: Sending, answer: Answer) -> None:
    """Send a complete answer of the hub's own."""
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
        # No piece is made before there is room for it: hundreds of streams may wait for their client.
        await sending.request.writable()
        piece = next(rest, None)
        if piece is None:
            return
        if number and not number % WRITTEN_AT_ONCE:
            # A client that reads as fast as the hub writes never makes it wait.
            await asyncio.sleep(0)
        await sending.write(piece)
        del piece  # for as long as a client does not read


def changed(change: object, piece: bytes) -> Iterable[bytes]:
    """The pieces that addons make of a piece of a body."""
    made = change(piece) if callable(change) else piece
    return (made,) if isinstance(made, bytes) else made


def in_pieces(body: bytes) -> Iterable[bytes]:
    return (body,) if len(body) <= PIECE else (body[at : at + PIECE] for at in range(0, len(body), PIECE))
