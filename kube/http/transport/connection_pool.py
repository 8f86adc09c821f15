"""Connections to servers, of HTTP/2 or HTTP/1.1, which requests share by a key of their sender's choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from kube.http.transport.request_fields import MINIMAL, HeaderFields
from kube.http.transport.response_sink import MAX_UNTAKEN, NotProcessed, ResponseSink
from kube.http.transport.streamed_response import StreamedResponse


class Connection(Protocol):
    """One connection: `kube.http.transport.http2_connection` and `kube.http.transport.http1_connection`."""

    @property
    def is_open(self) -> bool: ...

    @property
    def has_capacity(self) -> bool:
        """Whether a further request may be sent now."""

    def send(
        self, fields: HeaderFields, body: bytes, response: ResponseSink, *, is_complete: bool = True
    ) -> None:
        """Send a request, and hand its response to the sink. More of the body follows unless this is all."""

    def send_more(self, response: ResponseSink, data: bytes, *, is_last: bool) -> None:
        """Send more of the body of a request."""

    def unsent(self, response: ResponseSink) -> int:
        """Bytes of the request's body that the peer has no room for."""

    def acknowledge_data(self, response: ResponseSink, size: int) -> None:
        """Let the peer send more of a response: the sink has consumed so many bytes of its window."""

    def ping(self) -> asyncio.Future[float] | None:
        """The seconds until the peer has answered a ping; ConnectionResetError where it has not. None for HTTP/1.1."""

    def release(self, response: ResponseSink) -> None:
        """Drop a response that the caller reads no further."""

    def retire(self) -> None:
        """Take no more requests, and close after the last response that is under way."""

    def close(self) -> None:
        """Close at once. Responses under way break off."""


class ConnectionPool[Key: Hashable]:
    """Opens connections as they are needed, and keeps them. No two keys ever share one."""

    def __init__(self, connect: Callable[[Key], Awaitable[Connection]]) -> None:
        """`connect` opens a connection that can be used; OSError where it cannot, in a time of its own choice."""
        self._connect = connect
        self._connections: dict[Key, list[Connection]] = {}
        self._opening: dict[Key, asyncio.Task[Connection]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Close all connections, and open no more."""
        self._is_closed = True
        self.cut(lambda _: True)

    def cut(self, matches: Callable[[Key], bool]) -> int:
        """Close the connections of all keys that match, and stop opening further ones; return how many were open.

        Responses under way break off.
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
        """Like `Connection.ping`, over an open connection of the key; None where there is none."""
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
        window: int = MAX_UNTAKEN,
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request, and release the response afterwards. `received` is called with each piece's size as it comes.

        `window` has the bytes that may come before any is consumed. A request that a peer did not process is sent again
        on another connection.
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
            response.goes_by(connection.acknowledge_data)
            connection.send(fields, body, response)
            try:
                await response.begun()
            except NotProcessed:
                connection.release(response)
                if not response.begin_anew():
                    raise
            except BaseException as error:
                if isinstance(error, TimeoutError):
                    # The peer may be stuck with this connection: only a new one can show it.
                    connection.retire()
                connection.release(response)
                raise
            else:
                return connection

    async def acquire(self, key: Key) -> Connection:
        """An open connection with room for a request, or a new one; OSError where there is none."""
        while (connection := self.available(key)) is None:
            if self._is_closed:
                raise ConnectionResetError("the pool is closed")
            opening = self._opening.get(key)
            is_first = opening is None
            if opening is None:
                opening = self._opening[key] = asyncio.create_task(self._new(key), name="opens a connection")
                # By a callback: mitmproxy's loop runs a task at once, as far as it can.
                opening.add_done_callback(partial(self._opened, key))
            # A caller that gives up leaves it to the others, and to later ones: a slow server must be reached once.
            await asyncio.wait({opening})
            if opening.cancelled():
                raise ConnectionResetError("the connection was closed while it was opened")
            if not opening.result().is_open and is_first:
                raise ConnectionResetError("the connection was closed at once")
        return connection

    def available(self, key: Key) -> Connection | None:
        """An open connection with room for a request; None where there is none."""
        known = self._connections.get(key, ())
        connections = [connection for connection in known if connection.is_open]
        if not connections:
            self._connections.pop(key, None)
        elif len(connections) < len(known):
            self._connections[key] = connections
        return next((connection for connection in connections if connection.has_capacity), None)

    def __len__(self) -> int:
        """The connections that are open, or that are being opened."""
        return sum(
            connection.is_open for connections in self._connections.values() for connection in connections
        ) + len(self._opening)

    async def _new(self, key: Key) -> Connection:
        made = await self._connect(key)
        if not made.has_capacity:
            made.close()
            raise ConnectionRefusedError("the server takes no requests on a new connection")
        for idle_key in list(self._connections):
            self.available(idle_key)  # also drops the ended ones of keys that are no longer used
        self._connections.setdefault(key, []).append(made)
        return made

    def _opened(self, key: Key, opening: asyncio.Task[Connection]) -> None:
        if self._opening.get(key) is opening:
            del self._opening[key]
        if not opening.cancelled():
            opening.exception()  # its waiter may be gone
