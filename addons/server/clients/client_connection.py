"""Base class of the client connections of all HTTP versions: fair scheduling, pausing of reads, and batched writes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable

from mitmproxy import connection

from addons.requests.request_context import context_of
from addons.server.limits.client_addresses import FAIR_UNREAD, STREAM_UNREAD, address_of
from addons.server.request import Serve, ServedRequest
from addons.telemetry import metrics

MAX_READ = 16 * 1024
"""Maximum bytes of one read from a client. As many again are buffered while the client waits for the scheduler."""
MAX_UNWRITTEN = 4 * 1024
"""Bytes in asyncio's write buffer above which a client's answers are paused. The kernel buffers hundreds of KiB
more.
"""
FLUSH_SIZE = 64 * 1024
"""Bytes of pending output above which it is written at once instead of at the end of the loop iteration."""
CLOSE_TIMEOUT = 30.0
"""Seconds that a client has to read the last output before its connection is aborted."""
SOCKET_BUFFER = 80 * 1024
"""Bytes in the write buffer that do not count as unread: the hub's own answers write no further ahead."""

EVICTION_TARGET = 7 / 8
"""Fraction of a connection's unread bytes that may remain after an eviction. Each eviction frees several answers,
because sorting thousands of small answers to free a single one blocked the event loop."""


class ClientConnection(asyncio.Protocol, ABC):
    """Handles received bytes when the scheduler selects the client, and writes all output of a loop iteration at
    once.
    """

    REQUEST_OVERHEAD = 0
    """Bytes counted for a request with unread answer bytes, in addition to these bytes."""
    has_served = False
    """Whether the client has sent a request."""

    def __init__(self, client: connection.Client, serve: Serve) -> None:
        self.client, self._serve = client, serve
        self.address = address_of(client)
        self.transport: asyncio.Transport | None = None
        self.unread = 0
        """Bytes of answers that the hub holds because the client has not read them."""
        self.is_full = False
        """Whether the socket's write buffer is full."""
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._is_scheduled = False
        """Whether the client waits for the scheduler."""
        self._is_paused = False
        self._has_paused_answers = False
        self._output: list[bytes] = []
        self._output_size = 0
        self._waiting: dict[ServedRequest, asyncio.Future[None]] = {}
        """Requests that wait for space in the write buffer, each with the future that wakes it."""

    # -- for `addons.server.limits.client_addresses`

    @property
    @abstractmethod
    def requests(self) -> Iterable[ServedRequest]:
        """The requests whose answers are not complete."""

    @property
    def count(self) -> int:
        return len(list(self.requests))

    @property
    def weight(self) -> int:
        return sum(request.weight for request in self.requests)

    @property
    def unwritten(self) -> int:
        """Bytes in the socket's write buffer."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    @property
    def held(self) -> int:
        return self.unread + max(0, self.unwritten - SOCKET_BUFFER)

    def bound_unread_soon(self) -> None:
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
        self._input.clear()
        self._output.clear()
        for request in list(self.requests):
            request.leave()
        self.wake()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.wake()

    def data_received(self, data: bytes) -> None:
        self._input += data
        if not self._is_scheduled:
            self.schedule()
        if self._is_scheduled:
            self.update_reading()

    def schedule(self) -> None:
        """Handle received bytes: now, or after other clients' bytes."""
        self._is_scheduled = True
        self.address.listener.scheduler.schedule(self.address, self._run_step)

    def _run_step(self) -> None:
        self._is_scheduled = False
        if self.transport is None or self.transport.is_closing():
            self._input.clear()
            return
        if self.handle():
            self.schedule()
        self.bound_unread()
        self.resume_answers()
        self.update_reading()

    @property
    @abstractmethod
    def waits_since(self) -> float | None:
        """Monotonic time since when the hub has waited for the rest of an incomplete message; None if it does not
        wait.
        """

    @abstractmethod
    def handle(self) -> bool:
        """Handle as much of `_input` as one scheduled step may; return whether more can be handled."""

    @abstractmethod
    def request_done(self, request: ServedRequest) -> None:
        """Handle the end of a request's task: start the next request, or close the connection or the stream."""

    @property
    def must_pause_reading(self) -> bool:
        """Whether reading from the client is to be paused, because enough of its bytes are buffered."""
        return self._is_scheduled and len(self._input) >= MAX_READ

    def update_reading(self) -> None:
        """Pause or resume reading from the client's socket, according to `must_pause_reading`."""
        if (
            self.transport is None
            or self._is_paused == self.must_pause_reading
            or self.transport.is_closing()
        ):
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
        if not self._output:
            self._loop.call_soon(self.flush)
        self._output.append(data)
        self._output_size += len(data)
        if self._output_size > FLUSH_SIZE:
            self.flush()

    def write_at_once(self, data: bytes) -> None:
        """Write to the socket now, after earlier output: no further output of this iteration could join it."""
        self._output.append(data)
        self.flush()

    def flush(self) -> None:
        """Write the pending output to the socket."""
        if self._output and self.transport is not None:
            data = self._output[0] if len(self._output) == 1 else b"".join(self._output)
            self._output.clear()
            self._output_size = 0
            self.transport.write(data)

    def flush_if_large(self) -> None:
        """Flush large pending output, so that `is_full` reports the socket's real state."""
        if self._output_size > MAX_READ:
            self.flush()

    def close(self) -> None:
        """Close the connection once the client has read all output; abort it after LAST_READ seconds."""
        self.flush()
        if self.transport is not None and not self.transport.is_closing():
            if self.unwritten:
                self._loop.call_later(CLOSE_TIMEOUT, self.transport.abort)
            self.transport.close()

    async def wait_for_space(self, request: ServedRequest) -> None:
        """Return when the client may have space for output. ClientLeft if the client has left."""
        self._waiting[request] = self._loop.create_future()
        try:
            await self._waiting[request]
        finally:
            del self._waiting[request]
        request.check()

    def wake(self, request: ServedRequest | None = None) -> None:
        """Wake `request`, or all requests if None, that wait for space."""
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
        """Whether the hub's own answers to this client must pause, because the client has not read enough."""
        self._has_paused_answers = self.unread > STREAM_UNREAD and self.address.unread > FAIR_UNREAD
        return self._has_paused_answers

    def resume_answers(self) -> None:
        """Wake the paused answers if the client has read enough."""
        if self._has_paused_answers and not self.is_behind:
            self.wake()

    def bound_unread(self) -> None:
        """Abort answers while all clients together exceed MAX_UNREAD and this address exceeds its share, those with the
        most unread bytes first.

        If no answer holds bytes, the client does not read from its socket, and its connection is aborted. Only the
        connection with the most unread bytes of an address loses answers: a component may share its address with a
        user's stopped program.
        """
        while (
            self.transport is not None
            and not self.transport.is_closing()
            and self.held > 0
            and self.address.exceeds_share
        ):
            if (least := self.address.most_unread) is not self:
                least.bound_unread_soon()
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
                if self.unread <= before * EVICTION_TARGET:
                    break

    def abort_unread(self, request: ServedRequest) -> None:
        """Abort an answer that the client does not read."""
        request.count_queued(0)
        request.count_waiting(0)
        request.abort()
        request.leave("the client does not read")


def _count_slow_watch(request: ServedRequest) -> None:
    context = context_of(request.flow) if request.flow is not None else None
    if context is not None and context.info.verb == "watch" and context.info.type is not None:
        metrics.SLOW_WATCHERS.labels(context.info.type.group_resource).inc()
