"""The base of connections of all HTTP versions: fair scheduling, paused reads, gathered writes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable

from mitmproxy import connection

from addons.requests.request_context import context_of
from addons.server.limits.client_addresses import FAIR_UNREAD, STREAM_UNREAD, address_of
from addons.server.request import Serve, ServedRequest
from addons.telemetry import metrics

LARGEST_READ = 16 * 1024
"""Bytes that are read from a client at once, and as many again while it waits for the scheduler."""
MAX_UNWRITTEN = 4 * 1024
"""Bytes that may wait for a client's socket before its answers wait, too. The kernel has hundreds of KiB more."""
GATHERED = 64 * 1024
"""Bytes that are written to the socket at once, if the end of a loop iteration would gather more."""
LAST_READ = 30.0
"""Seconds that a client has to read the last that was written before its connection is aborted."""
SOCKET_BUFFER = 80 * 1024
"""Bytes that may wait for a client's socket uncounted: the hub's own answers write no more ahead."""

GIVEN_UP_AT_ONCE = 7 / 8
"""The share of its unread bytes that a client keeps, at most, when it loses answers.

With thousands of small answers, each searched among all, the search took more of the event loop than the requests.
"""


class ClientConnection(asyncio.Protocol, ABC):
    """Handles received bytes when the scheduler selects the client, and writes all output of one loop iteration at
    once."""

    OF_A_REQUEST = 0
    """Bytes that a request counts whose answer waits for the client, beside those of the answer."""
    has_served = False
    """A request has come."""

    def __init__(self, client: connection.Client, serve: Serve) -> None:
        self.client, self._serve = client, serve
        self.address = address_of(client)
        self.transport: asyncio.Transport | None = None
        self.unread = 0
        """Bytes of answers that wait for the client."""
        self.is_full = False
        """The socket's buffer is full."""
        self._loop = asyncio.get_running_loop()
        self._came = bytearray()
        self._waits = False
        """The client waits for the scheduler."""
        self._is_paused = False
        self._is_held_back = False
        self._out: list[bytes] = []
        self._gathered = 0
        self._waiting: dict[ServedRequest, asyncio.Future[None]] = {}
        """The requests that wait for space in the send buffer."""

    # -- for `addons.server.limits.client_addresses`

    @property
    @abstractmethod
    def requests(self) -> Iterable[ServedRequest]:
        """The open requests."""

    @property
    def count(self) -> int:
        return len(list(self.requests))

    @property
    def weight(self) -> int:
        return sum(request.weight for request in self.requests)

    @property
    def unwritten(self) -> int:
        """Bytes for which the socket has no space."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    @property
    def held(self) -> int:
        return self.unread + max(0, self.unwritten - SOCKET_BUFFER)

    def end_least_read(self) -> None:
        self._loop.call_soon(self.bound_unread)

    # -- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(MAX_UNWRITTEN)
        self.address.served.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.address.served.discard(self)
        self._came.clear()
        self._out.clear()
        for request in list(self.requests):
            request.leave()
        self.wake()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.wake()

    def data_received(self, data: bytes) -> None:
        self._came += data
        if not self._waits:
            self.schedule()
        self.settle_reading()

    def schedule(self) -> None:
        """Handle received bytes, now or after other clients."""
        self._waits = True
        self.address.listener.scheduler.ask(self.address, self._go)

    def _go(self) -> None:
        self._waits = False
        if self.transport is None or self.transport.is_closing():
            self._came.clear()
            return
        if self.handle():
            self.schedule()
        self.bound_unread()
        self.look_again()
        self.settle_reading()

    @property
    @abstractmethod
    def waits_since(self) -> float | None:
        """Since when the hub waits for the rest of a begun message; None if it does not. Monotonic time."""

    @abstractmethod
    def handle(self) -> bool:
        """Handle as much of `_came` as one step may; return whether there is more."""

    @abstractmethod
    def over(self, request: ServedRequest) -> None:
        """Take the end of a request's task."""

    @property
    def has_enough(self) -> bool:
        """Whether the hub reads no more from the client for now."""
        return self._waits and len(self._came) >= LARGEST_READ

    def settle_reading(self) -> None:
        """Read on, or leave it to the client to wait."""
        if self.transport is None or self._is_paused == self.has_enough or self.transport.is_closing():
            return
        self._is_paused = not self._is_paused
        if self._is_paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # -- output -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not data or self.transport is None:
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(data)
        self._gathered += len(data)
        if self._gathered > GATHERED:
            self.flush()

    def write_at_once(self, data: bytes) -> None:
        """Write this to the socket, behind earlier output: nothing follows in this iteration that could join it."""
        self._out.append(data)
        self.flush()

    def flush(self) -> None:
        """Write the output to the socket."""
        if self._out and self.transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._gathered = 0
            self.transport.write(data)

    def load(self) -> None:
        """Check whether the socket is full, after much was written in this iteration."""
        if self._gathered > LARGEST_READ:
            self.flush()

    def close(self) -> None:
        """Close when the client has read all output, or has not done so in LAST_READ."""
        self.flush()
        if self.transport is not None and not self.transport.is_closing():
            if self.unwritten:
                self._loop.call_later(LAST_READ, self.transport.abort)
            self.transport.close()

    async def moved(self, request: ServedRequest) -> None:
        """Return when there may be space. ClientLeft if the client has left."""
        self._waiting[request] = self._loop.create_future()
        try:
            await self._waiting[request]
        finally:
            del self._waiting[request]
        request.check()

    def wake(self, request: ServedRequest | None = None) -> None:
        """Wake a request, or each, that waits for space."""
        if request is None:
            waiting = list(self._waiting.values())
        else:
            waiting = [self._waiting[request]] if request in self._waiting else []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # -- clients that do not read

    @property
    def is_behind(self) -> bool:
        """Whether the hub's own answers wait for this client to read."""
        self._is_held_back = self.unread > STREAM_UNREAD and self.address.unread > FAIR_UNREAD
        return self._is_held_back

    def look_again(self) -> None:
        """Wake the waiting requests, if they need not wait any longer."""
        if self._is_held_back and not self.is_behind:
            self.wake()

    def bound_unread(self) -> None:
        """Break off the answers that hold most, while all clients leave too much unread, and this one's address most.

        A client that does not even read from its socket loses its connection. They are those of the client that holds
        most of all at the address: a component may be where a person's stopped program is.
        """
        while (
            self.transport is not None
            and not self.transport.is_closing()
            and self.held > 0
            and self.address.leaves_too_much
        ):
            if (least := self.address.least_read) is not self:
                least.end_least_read()
                return
            requests = [request for request in self.requests if request.held and not request.why_left]
            if not requests:
                metrics.UNREAD_STREAMS.inc()
                self.transport.abort()
                return
            before = self.unread
            for request in sorted(requests, key=lambda request: request.held, reverse=True):
                metrics.UNREAD_STREAMS.inc()
                _count_slow_watch(request)
                self.abort_unread(request)
                if self.unread <= before * GIVEN_UP_AT_ONCE:
                    break

    def abort_unread(self, request: ServedRequest) -> None:
        """Break off an answer that its client does not read."""
        request.queue(0)
        request.wait_with(0)
        request.abort()
        request.leave("the client does not read")


def _count_slow_watch(request: ServedRequest) -> None:
    context = context_of(request.flow) if request.flow is not None else None
    if context is not None and context.info.verb == "watch" and context.info.type is not None:
        metrics.SLOW_WATCHERS.labels(context.info.type.group_resource).inc()
