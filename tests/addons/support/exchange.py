"""A request to a hub without a connection: the status of its response, and the pieces of its body as they are
written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from addons.requests.answers import Answer, status_answer
from kube.errors import StatusError

BUFFER_LIMIT = 64 * 1024
"""Bytes that a client accepts before it reads."""


class Exchange:
    """Receive a response as an `addons.requests.answers.ClientStream`."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.reads = asyncio.Event()
        """True while the client reads the data."""
        self.reads.set()
        self.headers: Mapping[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        """The task that answers the request."""
        self._is_cut = False
        self._unread = 0
        self._taken = asyncio.Event()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    def start(self, answering: Coroutine[Any, Any, Answer | None]) -> None:
        """Start the task that answers the request."""
        self.follow(asyncio.create_task(self.answered(answering), name="answer"))

    def follow(self, task: asyncio.Task[None]) -> None:
        """Adopt the task that runs `answered`."""
        self.task = task
        # A task that is cancelled before its first step runs no handler of its own.
        task.add_done_callback(self._end)

    async def answered(self, answering: Awaitable[Answer | None]) -> None:
        """Receive the response to its end, as `addons.server.respond` does."""
        try:
            await self.give(await answering)
        except StatusError as error:
            if self.status.done():
                raise
            await self.give(status_answer(error))

    def close(self) -> None:
        """Abort the connection, from either side."""
        if self.task is not None:
            self.task.cancel()

    async def closed(self) -> None:
        """Abort the connection, and wait until the hub has handled it."""
        self.close()
        if self.task is not None:
            await asyncio.wait([self.task])

    def _end(self, task: asyncio.Task[None]) -> None:
        """End the response, complete or aborted."""
        self._is_cut = task.cancelled() or task.exception() is not None
        if not self.status.done():
            self.status.set_exception(ConnectionResetError("the connection was closed"))
            self.status.exception()
        self._pieces.put_nowait(None)

    @property
    def content_type(self) -> str:
        """Return the content type without parameters."""
        return self.headers["Content-Type"].partition(";")[0]

    async def next_piece(self) -> bytes:
        """Return more of the body; empty at its end, ConnectionResetError if it was aborted."""
        piece = await self._pieces.get()
        if piece is None:
            self._pieces.put_nowait(None)
            if self._is_cut:
                raise ConnectionResetError("the connection was closed")
            return b""
        self._unread -= len(piece)
        self._taken.set()
        return piece

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.next_piece():
            yield piece

    async def read_body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def begin(self, headers: Mapping[str, str]) -> None:
        self.begin_with(200, headers)

    def begin_with(self, status: int, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.status.set_result(status)

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        while self._unread > BUFFER_LIMIT:
            self._taken.clear()
            await self._taken.wait()
        self._put(data)

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            await asyncio.sleep(0)
            await self.write(piece)

    @property
    def try_write(self) -> Callable[[bytes], bool]:
        def send(data: bytes) -> bool:
            is_writable = self.reads.is_set() and self._unread <= BUFFER_LIMIT
            if is_writable:
                self._put(data)
            return is_writable

        return send

    def _put(self, data: bytes) -> None:
        if data:
            self._unread += len(data)
            self._pieces.put_nowait(data)

    async def give(self, answer: Answer | None) -> None:
        """Receive a complete response; a streamed one has arrived already."""
        if answer is not None:
            self.begin_with(answer.status, answer.headers)
            await self.write_all([answer.body] if isinstance(answer.body, bytes) else answer.body)
