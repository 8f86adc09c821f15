"""Makes the hub's own answers, and sends them as their clients read. No server stands behind such a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from addons.requests.answers import Answer, ClientLeft, ToCloud, status_answer
from addons.requests.exchange.client_side import SWITCHED, WITHOUT_BODY, ClientSide
from addons.requests.exchange.direct_pieces import TLS_RECORD
from addons.requests.websocket_watch import WebSocketWatch
from kube.errors import StatusError, internal, unavailable
from kube.wire.codec_base import PIECE

WRITTEN_AT_ONCE = 4
"""Pieces of an answer that go out before others have their turn, where the client reads as fast: half a millisecond."""

logger = logging.getLogger(__name__)


async def answer_request(client: ClientSide) -> bool:
    """Have a request answered by who answers it, or with the Status of what went wrong.

    False where a server is to answer it instead, which the context names.
    """
    stream = AnswerStream(client)
    offer = client.context.websocket if client.context is not None else None
    socket = WebSocketWatch(stream, offer) if offer is not None else None
    try:
        context = client.context
        if context is None or context.answerer is None:
            raise internal("nobody answers this request")
        try:
            answer = await context.answerer.answer(client.request(), socket or stream)
        except ToCloud:
            if context.relay is None:
                raise unavailable("the hub has no answer of its own", retry_after=1) from None
            client.leave_to_cloud()
            return False
        if answer is not None:
            await stream.play(answer)
        else:
            await (socket or stream).end()
    except (ClientLeft, asyncio.CancelledError):
        # A task that were cancelled would keep the error, with all frames and what they name.
        if socket is not None and socket.is_closing:
            await socket.end()
    except StatusError as error:
        await stream.fail(error)
    except Exception:
        logger.exception("a request could not be answered")
        await stream.fail(internal("the hub could not answer this request"))
    finally:
        if socket is not None:
            socket.let_go()
    return True


class AnswerStream:
    """`addons.requests.answers.ClientStream` of one request, and what else an answer needs of it."""

    def __init__(self, client: ClientSide) -> None:
        self._client = client
        self._has_begun = False
        self.outlet: Callable[[bytes], bool] | None = None

    async def begin(self, headers: Mapping[str, str]) -> None:
        await self._begin(200, headers.items())

    async def _begin(self, status: int, fields: Iterable[tuple[str, str]]) -> None:
        self._check_open()
        self._has_begun = True
        self._client.answer_head(status, fields)
        await self._client.play()
        self._check_open()
        takes_pieces = await self._client.begun()
        self._check_open()
        if takes_pieces:
            self.outlet = self._client.direct()

    async def switch(self, headers: Mapping[str, str], receive: Callable[[bytes], None]) -> None:
        """As `addons.requests.websocket_watch.SwitchedStream.switch`."""
        self._check_open()
        self._has_begun = True
        self._client.answer_head(SWITCHED, headers.items())
        self._client.end()
        self._client.switch(receive)
        await self._client.play()
        await self._client.begun()
        self._check_open()

    async def write(self, data: bytes) -> None:
        self._check_open()
        if self.outlet is not None and self.outlet(data):
            return
        await self._client.wait_for_room()
        self._check_open()
        for at in range(0, len(data), TLS_RECORD):
            self._client.data(data[at : at + TLS_RECORD])
        await self._client.play()

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        for number in count():
            # No piece is made before there is room for it: hundreds of streams may wait for their client.
            await self._client.wait_for_room()
            piece = next(rest, None)
            if piece is None:
                return
            if number and not number % WRITTEN_AT_ONCE:
                # A client that reads as fast as the hub writes never makes it wait.
                await asyncio.sleep(0)
            await self.write(piece)
            del piece  # for as long as a client does not read

    async def play(self, answer: Answer) -> None:
        """Send a whole answer."""
        body, fields = answer.body, [*answer.headers.items()]
        if isinstance(body, bytes) and answer.status not in WITHOUT_BODY:
            fields.append(("Content-Length", str(len(body))))
        if self._client.is_head:
            body = b""
        if isinstance(body, bytes) and len(body) <= PIECE:
            await self._client.wait_for_room()
            self._client.answer_head(answer.status, fields)
            if body:
                self._client.data(body)
            await self.end()
            return
        await self._begin(answer.status, fields)
        await self.write_all(_in_pieces(body) if isinstance(body, bytes) else body)
        await self.end()

    async def send_held(self, body: bytes) -> None:
        """Send the body of an answer whose head has been sent, and end it."""
        self.outlet = self._client.direct()
        with contextlib.suppress(ClientLeft, asyncio.CancelledError):  # see `answer_request`
            await self.write_all(_in_pieces(body))
            await self.end()

    async def end(self, last: bytes = b"") -> None:
        """End an answer that has begun, with some last bytes for which no room is awaited."""
        if last:
            self._client.data(last)
        self._client.end()
        await self._client.play()

    async def fail(self, error: StatusError) -> None:
        """Answer with a Status. An answer that has begun is broken off: nobody may take it for a whole one."""
        if not self._has_begun:
            await self.play(status_answer(error))
            return
        self._client.break_off(error.message)
        await self._client.play()

    def _check_open(self) -> None:
        """ClientLeft where nobody takes more of the answer."""
        if self._client.is_over:
            raise ClientLeft


def _in_pieces(body: bytes) -> Iterable[bytes]:
    return (body[at : at + PIECE] for at in range(0, len(body), PIECE))
