"""One request of a client, in any version of HTTP: its head and body, and the methods that answer it."""

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
"""Answers a request, and raises nothing."""


class Carrier(Protocol):
    """The connection by which a request came: an `addons.server.clients.client_connection.ClientConnection`."""

    OF_A_REQUEST: int
    """Bytes that a request counts whose answer waits for the client, beside those of the answer."""
    unread: int
    """Bytes of answers that wait for the client."""

    @property
    def client(self) -> connection.Client: ...

    @property
    def address(self) -> ClientAddress: ...

    @property
    def transport(self) -> asyncio.Transport | None: ...

    def over(self, request: ServedRequest) -> None:
        """Take the end of a request's task."""

    def bound_unread(self) -> None:
        """Break off answers, if clients leave too much unread."""

    def look_again(self) -> None:
        """Wake the answers that waited for the bytes of other clients."""


LEFT = "Client disconnected."
"""The text of mitmproxy in a flow's error."""


class Inbox:
    """Pieces of a body between the connection, which puts them, and their reader."""

    __slots__ = ("_waiter", "grown", "has_ended", "is_lost", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.size = 0
        self.has_ended = self.is_lost = False
        self.grown: Callable[[], None] | None = None
        """Called at each piece that comes."""
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
        """Note that no more comes, and that the body is incomplete."""
        self.is_lost = True
        self._wake()

    def clear(self) -> int:
        """Drop unread pieces; return their bytes."""
        size, self.size = self.size, 0
        self.pieces.clear()
        return size

    async def get(self) -> bytes:
        """The next piece; empty at the end. ClientLeft where the rest is lost."""
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
    """A head, a body to read, and an answer to send. `read` and `send` wait; all else is done at once.

    ClientLeft from any of them where the client has gone.
    """

    has_begun = False
    """The head of an answer has gone."""
    is_over = False
    """The answer has gone to its end, or was broken off."""
    is_observed = False
    """Addons have seen the complete answer, and get no error."""
    why_left = ""
    """The reason why the client takes no answer any more; "" while it may."""
    shielded = 0
    """How many steps are under way that are never cancelled, such as hooks that addons handle."""
    flow: http.HTTPFlow | None = None
    """The flow that people see, once the request is served."""

    def __init__(self, own: Carrier, head: http.Request, *, has_body: bool) -> None:
        self.connection = own
        self.client: connection.Client = own.client
        self.address: ClientAddress = own.address
        self.head = head
        self.has_body = has_body
        self.is_head = head.data.method == b"HEAD"
        self.inbox = Inbox()
        self.weight = self.address.begin_request(head.data.path, head.data.headers.fields)
        """The number of requests for which this one counts at its address."""
        self._task: asyncio.Task[None] | None = None
        self._queued = self._unsent = self._counted = 0

    # -- the request

    @abstractmethod
    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""

    # -- the answer

    @abstractmethod
    def send_head(self, status: int, fields: AnswerFields) -> None:
        """Send the head of an answer whose body follows."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send a piece of the body, and return when there is room for more."""

    @abstractmethod
    def can_send(self, size: int) -> bool:
        """Whether a piece of so many bytes would go at once, behind no other one."""

    @abstractmethod
    def send_now(self, data: bytes) -> None:
        """Send a piece for which there is room."""

    @abstractmethod
    async def writable(self) -> None:
        """Return when a piece would go at once."""

    @abstractmethod
    def end(self, trailers: AnswerFields = ()) -> None:
        """End an answer whose head was sent."""

    @abstractmethod
    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        """Send a complete answer."""

    @abstractmethod
    def abort(self) -> None:
        """Break the answer off, so that the client sees it as incomplete."""

    def switch(self, fields: AnswerFields) -> None:
        """Send a 101: `read` and `send` are of another protocol from here on."""
        raise ClientLeft  # HTTP/2 has none (RFC 9113, 8.6)

    def answer_last(self, response: http.Response) -> None:
        """Send in an answer that no request is answered behind it on a connection of HTTP/1.1."""
        return

    # -- the task

    def start(self, serve: Serve, *, eagerly: bool = True) -> None:
        """Start to serve the request, up to the first wait at once."""
        coroutine, loop = serve(self), asyncio.get_running_loop()
        self._task = asyncio.Task(coroutine, loop=loop, name="request", eager_start=eagerly)
        if self._task.done():
            self._over(self._task)
        else:
            self._task.add_done_callback(self._over)

    def leave(self, why: str = LEFT) -> None:
        """Cancel the answer, but for a step that is shielded."""
        if self.why_left:
            return
        self.why_left = why
        self.inbox.lose()
        if self._task is not None and not self.shielded:
            self._task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # `serve` raises nothing
        self._task = None
        self._queued = self._unsent = 0
        self._recount()
        self.connection.over(self)

    def check(self) -> None:
        """ClientLeft where the client does not take the rest."""
        if self.why_left or self.is_over or self.connection.transport is None:
            raise ClientLeft

    # -- bytes that wait for the client -----------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes of the answer that wait for the client."""
        return self._queued + self._unsent

    def queue(self, size: int) -> None:
        """Count bytes of a server that have not been given to `send` yet."""
        self._queued = size
        self._recount()

    def wait_with(self, size: int) -> None:
        """Count the rest of a piece that `send` has no room for."""
        self._unsent = size
        self._recount()

    def _recount(self) -> None:
        counted = self._queued + self._unsent
        if counted:
            counted += self.connection.OF_A_REQUEST
        more, self._counted = counted - self._counted, counted
        if more:
            self.connection.unread += more
            if more > 0:
                self.connection.bound_unread()
            else:
                self.connection.look_again()
