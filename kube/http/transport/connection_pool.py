"""A pool of connections to servers, over HTTP/2 or HTTP/1.1. Requests with the same key share connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from kube.http.transport.request_fields import MINIMAL, HeaderFields
from kube.http.transport.response_sink import MAX_UNREAD, NotProcessed, ResponseSink
from kube.http.transport.streamed_response import StreamedResponse


class Connection(Protocol):
    """One connection: `kube.http.transport.http2_connection` and `kube.http.transport.http1_connection`."""

    @property
    def is_open(self) -> bool: ...

    @property
    def has_capacity(self) -> bool:
        """True if another request may be sent now."""

    def send(
        self, fields: HeaderFields, body: bytes, response: ResponseSink, *, is_complete: bool = True
    ) -> None:
        """Send a request, and deliver its response to the sink. Unless `is_complete`, more of the body follows."""

    def send_more(self, response: ResponseSink, data: bytes, *, is_last: bool) -> None:
        """Send more of the body of a request."""

    def unsent(self, response: ResponseSink) -> int:
        """Bytes of the request's body that do not fit into the peer's flow-control window yet."""

    def acknowledge_data(self, response: ResponseSink, size: int) -> None:
        """Reopen the flow-control window by `size` bytes of a response that the sink has consumed."""

    def ping(self) -> asyncio.Future[float] | None:
        """Measure a round trip in seconds; ConnectionResetError if the peer does not answer. None for HTTP/1.1."""

    def release(self, response: ResponseSink) -> None:
        """Cancel a response that the caller no longer reads."""

    def retire(self) -> None:
        """Accept no more requests, and close after the last response in progress."""

    def close(self) -> None:
        """Close at once. Responses in progress are aborted."""


class ConnectionPool[Key: Hashable]:
    """Opens connections on demand and reuses them. Different keys never share a connection."""

    def __init__(self, connect: Callable[[Key], Awaitable[Connection]]) -> None:
        """Set `connect`, which opens a connection; OSError if that fails, after a time-out of its own."""
        self._connect = connect
        self._connections: dict[Key, list[Connection]] = {}
        self._opening: dict[Key, asyncio.Task[Connection]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Close all connections and refuse new ones."""
        self._is_closed = True
        self.cut(lambda _: True)

    def cut(self, matches: Callable[[Key], bool]) -> int:
        """Close the connections of all matching keys, cancel their connects, and return how many were open.

        Responses in progress are aborted.
        """
        for key, opening in self._opening.items():
            if matches(key) and opening is not asyncio.current_task():
                opening.cancel()
        closed = [
            connection
            for key in list(self._connections)
            if matches(key)
            for connection in self._connections.pop(key)
        ]
        still_open = [connection for connection in closed if connection.is_open]
        for connection in still_open:
            connection.close()
        return len(still_open)

    def ping(self, key: Key) -> asyncio.Future[float] | None:
        """Ping over an open connection of the key, as `Connection.ping`; None if there is none."""
        connections = (connection for connection in self._connections.get(key, ()) if connection.is_open)
        return next((pong for connection in connections if (pong := connection.ping()) is not None), None)

    @asynccontextmanager
    async def open(
        self,
        key: Key,
        fields: HeaderFields,
        body: bytes,
        deadline: float,
        received: Callable[[int], None] = lambda _: None,
        *,
        window: int = MAX_UNREAD,
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request, and release its response on exit. `received` is called with the size of each piece of the
        body.

        `window` is the number of bytes that the server may send before the caller reads any. A request that a peer did
        not process is sent again on another connection.
        """
        response = StreamedResponse(deadline, window)
        response.received, response.is_wanted = received, MINIMAL not in fields
        connection = await self._send(key, fields, body, deadline, response)
        try:
            yield response
        finally:
            connection.release(response)

    async def _send(
        self,
        key: Key,
        fields: HeaderFields,
        body: bytes,
        deadline: float,
        response: StreamedResponse,
    ) -> Connection:
        while True:
            async with asyncio.timeout_at(deadline):
                connection = await self.acquire(key)
            response.attach(connection.acknowledge_data)
            connection.send(fields, body, response)
            try:
                await response.begun()
            except NotProcessed:
                connection.release(response)
                if not response.begin_anew():
                    raise
            except BaseException as error:
                if isinstance(error, TimeoutError):
                    # The connection may be dead, so the next request must open a new one.
                    connection.retire()
                connection.release(response)
                raise
            else:
                return connection

    async def acquire(self, key: Key) -> Connection:
        """Return an open connection with capacity, or a new one; OSError if it cannot be opened."""
        while (connection := self.available(key)) is None:
            if self._is_closed:
                raise ConnectionResetError("the pool is closed")
            opening = self._opening.get(key)
            is_first = opening is None
            if opening is None:
                opening = self._opening[key] = asyncio.create_task(self._new(key), name="opens a connection")
                # A done-callback, not a task: mitmproxy's loop runs a new task at once until its first wait.
                opening.add_done_callback(partial(self._opened, key))
            # A cancelled caller leaves the connect running for other callers: one connect to a slow server must
            # succeed.
            await asyncio.wait({opening})
            if opening.cancelled():
                raise ConnectionResetError("the connection was closed while it was opened")
            if not opening.result().is_open and is_first:
                raise ConnectionResetError("the connection was closed at once")
        return connection

    def available(self, key: Key) -> Connection | None:
        """Return an open connection with capacity; None if there is none."""
        known = self._connections.get(key, ())
        if known and known[0].is_open and known[0].has_capacity:
            return known[0]
        connections = [connection for connection in known if connection.is_open]
        if not connections:
            self._connections.pop(key, None)
        elif len(connections) < len(known):
            self._connections[key] = connections
        return next((connection for connection in connections if connection.has_capacity), None)

    def __len__(self) -> int:
        """The number of connections that are open or being opened."""
        return sum(
            connection.is_open for connections in self._connections.values() for connection in connections
        ) + len(self._opening)

    async def _new(self, key: Key) -> Connection:
        made = await self._connect(key)
        if not made.has_capacity:
            made.close()
            raise ConnectionRefusedError("the server refuses requests even on a new connection")
        for idle_key in list(self._connections):
            self.available(idle_key)  # also drops closed connections of unused keys
        self._connections.setdefault(key, []).append(made)
        return made

    def _opened(self, key: Key, opening: asyncio.Task[Connection]) -> None:
        if self._opening.get(key) is opening:
            del self._opening[key]
        if not opening.cancelled():
            opening.exception()  # the waiting caller may have been cancelled
