"""Plays the hub's own answers into the streams of flows. No server stands behind such a request.

Each answer is made by a task. Its head and its end pass mitmproxy's layers as those of a server's answer do, and so
does the body where mitmproxy holds it. A body that is streamed passes those layers alone that change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from mitmproxy import http
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)

from addons.proxy.http.direct_pieces import TLS_RECORD, DirectPieces
from addons.proxy.http.messages import WITHOUT_BODY, response_of_answer, tell_end
from addons.proxy.http.request_stream import RequestStream
from addons.requests.answers import Answer, ClientLeft, ToCloud, status_answer
from addons.requests.request_context import context_of
from kube.errors import StatusError, internal, unavailable
from kube.wire.codec_base import PIECE

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Played(events.Event):
    """Parts of the hub's own answer to the request of a stream."""

    stream: RequestStream
    parts: Sequence[HttpEvent]


class Player(Protocol):
    """The handler of a client's connection, or of a replay."""

    async def server_event(self, event: events.Event) -> None:
        """Have the layers handle an event."""

    def has_handled(self, hook: commands.StartHook) -> bool:
        """Have the addons handle a hook; whether they have done so at once. Else mitmproxy waits for them."""

    @property
    def unwritten(self) -> int:
        """Bytes that the client's socket has no room for."""

    def has_room(self, stream: RequestStream) -> bool:
        """Whether the client has read enough of what it was sent before."""

    async def wait_for_room(self, stream: RequestStream) -> None:
        """Return when it has. ClientLeft when it has left."""

    def direct(self, stream: RequestStream) -> DirectPieces | None:
        """A shorter way of the pieces of a stream that is streaming; None where there is none."""


players: WeakValueDictionary[str, Player] = WeakValueDictionary()
"""By the client's id."""


async def answer_request(stream: AnswerStream) -> bool:
    """Have a request answered by who answers it, or with the Status of what went wrong.

    False where a server is to answer it instead, which the context names.
    """
    try:
        context = context_of(stream.flow)
        if context is None or context.answerer is None:
            raise internal("nobody answers this request")
        try:
            answer = await context.answerer.answer(context.client_request(stream.flow.request), stream)
        except ToCloud:
            if context.relay is None:
                raise unavailable("the hub has no answer of its own", retry_after=1) from None
            context.relay(stream.flow)
            return False
        if answer is not None:
            await stream.play(answer)
        else:
            await stream.end()
    except (ClientLeft, asyncio.CancelledError):
        # A task that were cancelled would keep the error, with all frames and what they name.
        pass
    except StatusError as error:
        await stream.fail(error)
    except Exception:
        logger.exception("a request could not be answered")
        await stream.fail(internal("the hub could not answer this request"))
    return True


class AnswerStream:
    """`addons.requests.answers.ClientStream` of one flow, and what else an answer needs of it."""

    def __init__(self, stream: RequestStream, streams: Mapping[int, layer.Layer], player: Player) -> None:
        self._stream = stream
        self._streams = streams
        self._player = player
        self._direct: DirectPieces | None = None
        self._has_begun = False

    @property
    def flow(self) -> http.HTTPFlow:
        return self._stream.flow

    @property
    def outlet(self) -> Callable[[bytes], bool] | None:
        return self._direct.send if self._direct is not None else None

    async def begin(self, headers: Mapping[str, str]) -> None:
        await self._begin(200, headers.items())

    async def _begin(self, status: int, fields: Iterable[tuple[str, str]]) -> None:
        self._check_open()
        self._has_begun = True
        await self._play(ResponseHeaders(self._stream.stream_id, self._head(status, fields)))
        self._check_open()
        await self._stream.response_begun()
        self._check_open()
        if self._stream.is_streaming:
            self._direct = self._player.direct(self._stream)

    async def write(self, data: bytes) -> None:
        self._check_open()
        if self._direct is not None and self._direct.send(data):
            return
        await self._player.wait_for_room(self._stream)
        self._check_open()
        records = (data[at : at + TLS_RECORD] for at in range(0, len(data), TLS_RECORD))
        await self._play(*(ResponseData(self._stream.stream_id, record) for record in records))

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        rest, has_begun = iter(pieces), False
        while True:
            # No piece is made before there is room for it: hundreds of streams may wait for their client.
            await self._player.wait_for_room(self._stream)
            piece = next(rest, None)
            if piece is None:
                return
            if has_begun:
                # A client that reads as fast as the hub writes never makes it wait.
                await asyncio.sleep(0)
            await self.write(piece)
            has_begun = True

    async def play(self, answer: Answer) -> None:
        """Send a whole answer."""
        body, fields = answer.body, [*answer.headers.items()]
        if isinstance(body, bytes) and answer.status not in WITHOUT_BODY:
            fields.append(("Content-Length", str(len(body))))
        if self.flow.request.method == "HEAD":
            body = b""
        number = self._stream.stream_id
        if isinstance(body, bytes) and len(body) <= PIECE:
            head = ResponseHeaders(number, self._head(answer.status, fields), end_stream=not body)
            parts = [ResponseData(number, body)] if body else []
            await self._player.wait_for_room(self._stream)
            await self._play(head, *parts, ResponseEndOfMessage(number))
            return
        await self._begin(answer.status, fields)
        await self.write_all(_in_pieces(body) if isinstance(body, bytes) else body)
        await self.end()

    async def send_held(self, body: bytes) -> None:
        """Send the body of an answer whose head has been sent, and end it."""
        self._direct = self._player.direct(self._stream)
        with contextlib.suppress(ClientLeft, asyncio.CancelledError):  # see `answer_request`
            await self.write_all(_in_pieces(body))
            await self.end()

    async def end(self) -> None:
        """End an answer that has begun."""
        await self._play(ResponseEndOfMessage(self._stream.stream_id))

    async def fail(self, error: StatusError) -> None:
        """Answer with a Status. An answer that has begun is broken off: nobody may take it for a whole one."""
        if not self._has_begun:
            await self.play(status_answer(error))
            return
        code = ErrorCode.GENERIC_SERVER_ERROR
        await self._play(ResponseProtocolError(self._stream.stream_id, error.message, code))

    async def _play(self, *parts: HttpEvent) -> None:
        await self._player.server_event(Played(self._stream, parts))

    def _check_open(self) -> None:
        """ClientLeft where nobody takes more of the answer."""
        stream = self._stream
        if stream.is_over or self._streams.get(stream.stream_id) is not stream:
            raise ClientLeft

    def _head(self, status: int, fields: Iterable[tuple[str, str]]) -> http.Response:
        made = response_of_answer(status, fields)
        tell_end(made, self.flow.request)
        return made


def _in_pieces(body: bytes) -> Iterable[bytes]:
    return (body[at : at + PIECE] for at in range(0, len(body), PIECE))
