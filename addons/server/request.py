"""One request of a client, in any version of HTTP: its head and body, and the methods that send its answer."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from mitmproxy import connection, http

from addons.requests.answers import ClientLeft
from addons.server.limits.client_addresses import ClientAddress

type AnswerFields = Sequence[tuple[bytes, bytes]]
type Serve = Callable[["ServedRequest"], Coroutine[Any, Any, None]]
"""A coroutine function that serves a request and handles every exception."""


class Carrier(Protocol):
    """The connection of a request: an `addons.server.clients.client_connection.ClientConnection`."""

    REQUEST_OVERHEAD: int
    """Bytes counted for a request with unread answer bytes, in addition to these bytes."""
    unread: int
    """Bytes of answers that the hub holds because the client has not read them."""

    @property
    def client(self) -> connection.Client: ...

    @property
    def address(self) -> ClientAddress: ...

    @property
    def transport(self) -> asyncio.Transport | None: ...

    def request_done(self, request: ServedRequest) -> None:
        """Handle the end of a request's task: start the next request, or close the connection or the stream."""

    def bound_unread(self) -> None:
        """Abort answers if clients leave too many bytes unread."""

    def resume_answers(self) -> None:
        """Resume the answers that were paused for the connection's unread bytes, if there are few enough now."""


LEFT = "Client disconnected."
"""mitmproxy's error text for a flow whose client has disconnected."""


class Inbox:
    """Queue of body pieces, filled by the connection and emptied by one reader."""

    __slots__ = ("_waiter", "grown", "has_ended", "is_lost", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.size = 0
        self.has_ended = self.is_lost = False
        self.grown: Callable[[], None] | None = None
        """Called after each received piece."""
        self._waiter: asyncio.Future[None] | None = None

    def put(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.size += len(piece)
        if self.grown is not None:
            self.grown()
        self._wake()

    def end(self) -> None:
        self.has_ended = True
        self._wake()

    def lose(self) -> None:
        """Mark the body as incomplete: no further piece arrives."""
        self.is_lost = True
        self._wake()

    def clear(self) -> int:
        """Drop the unread pieces; return their size in bytes."""
        size, self.size = self.size, 0
        self.pieces.clear()
        return size

    async def get(self) -> bytes:
        """Return the next piece, empty at the end. ClientLeft if the rest is lost."""
        while not self.pieces:
            if self.is_lost:
                raise ClientLeft
            if self.has_ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self.pieces.popleft()
        self.size -= len(piece)
        return piece

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ServedRequest(ABC):
    """A request with its head, a body to read, and methods to answer it.

    `read`, `send` and `writable` wait; all other methods return at once. Any of them raises ClientLeft after the client
    has disconnected.
    """

    has_begun = False
    """Whether the head of an answer has been sent."""
    is_over = False
    """Whether the answer has been sent completely, or was aborted."""
    is_observed = False
    """Whether the addons have seen the complete answer: their error hook is not called then."""
    why_left = ""
    """Why the client no longer reads the answer; "" while it does."""
    shielded = 0
    """Number of running steps that must not be cancelled, such as addons' hooks."""
    flow: http.HTTPFlow | None = None
    """The flow that interfaces show; None until the request is served."""

    def __init__(self, own: Carrier, head: http.Request, *, has_body: bool) -> None:
        self.connection = own
        self.client: connection.Client = own.client
        self.address: ClientAddress = own.address
        self.head = head
        self.has_body = has_body
        self.is_head = head.data.method == b"HEAD"
        self.inbox = Inbox()
        self.weight = self.address.begin_request(head.data.path, head.data.headers.fields)
        """The number of requests that this one counts for at its address: a large head counts more."""
        self._task: asyncio.Task[None] | None = None
        self._queued = self._unsent = self._counted = 0

    # -- the request

    @abstractmethod
    async def read(self) -> bytes:
        """Return the next piece of the body, empty at its end."""

    # -- the answer

    @abstractmethod
    def send_head(self, status: int, fields: AnswerFields) -> None:
        """Send the head of an answer. Its body follows."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send a piece of the body, and wait for space in the client's window or socket."""

    @abstractmethod
    def can_send(self, size: int) -> bool:
        """Whether a piece of `size` bytes could be sent now, with no other piece waiting."""

    @abstractmethod
    def send_now(self, data: bytes) -> None:
        """Send a piece for which `can_send` was true."""

    @abstractmethod
    async def writable(self) -> None:
        """Return when the client has space for a piece."""

    @abstractmethod
    def end(self, trailers: AnswerFields = ()) -> None:
        """End the body of an answer."""

    @abstractmethod
    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        """Send a complete answer."""

    @abstractmethod
    def abort(self) -> None:
        """Abort the answer, so that the client sees it as incomplete."""

    def switch(self, fields: AnswerFields) -> None:
        """Send a 101: from now on `read` and `send` carry another protocol."""
        raise ClientLeft  # HTTP/2 has no 101 (RFC 9113, 8.6)

    def announce_close(self, response: http.Response) -> None:
        """Announce in the answer that an HTTP/1.1 connection closes after it."""
        return

    # -- the task

    def start(self, serve: Serve) -> None:
        """Start the task that serves the request, and run it up to its first wait now."""
        loop = asyncio.get_running_loop()
        task = asyncio.Task(self._run(serve), loop=loop, name="request", eager_start=True)
        self._task = None if task.done() else task

    async def _run(self, serve: Serve) -> None:
        # A callback of the task would be one more round of the event loop.
        try:
            await serve(self)
        finally:
            self._finish()

    def leave(self, why: str = LEFT) -> None:
        """Cancel the answer, unless a shielded step is running."""
        if self.why_left:
            return
        self.why_left = why
        self.inbox.lose()
        if self._task is not None and not self.shielded:
            self._task.cancel()

    def _finish(self) -> None:
        self._task = None
        self._queued = self._unsent = 0
        self._recount()
        self.connection.request_done(self)

    def check(self) -> None:
        """Raise ClientLeft if the client no longer reads the answer."""
        if self.why_left or self.is_over or self.connection.transport is None:
            raise ClientLeft

    # -- bytes that wait for the client -----------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes of the answer that the hub holds because the client has not read them."""
        return self._queued + self._unsent

    def count_queued(self, size: int) -> None:
        """Count bytes received from a server that `send` has not taken yet."""
        self._queued = size
        self._recount()

    def count_waiting(self, size: int) -> None:
        """Count the bytes of a piece that `send` holds until the client has space."""
        self._unsent = size
        self._recount()

    def _recount(self) -> None:
        counted = self._queued + self._unsent
        if counted:
            counted += self.connection.REQUEST_OVERHEAD
        more, self._counted = counted - self._counted, counted
        if more:
            self.connection.unread += more
            if more > 0:
                self.connection.bound_unread()
            else:
                self.connection.resume_answers()
