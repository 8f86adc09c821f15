"""A TCP link between a hub and its cloud, which tests can slow down, cut, or silence."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from tests.cloud.ports import LOOPBACK, ReservedPort

CHUNK = 64 * 1024
"""Bytes read at once at full speed, the size of a pipe."""
TICKS = 20
"""Chunks per second of a limited link, so that bytes trickle instead of arriving in bursts."""
LEAST_RESEND = 0.2
"""The minimum of seconds until Linux sends a lost segment again."""
IN_FLIGHT = 16
"""Chunks in flight per direction and connection; beyond them the sender stalls, as with TCP."""
CONTROL_TIMEOUT = 5.0
"""Seconds until a change of the link must have taken effect; it takes milliseconds."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing sends RST, not FIN."""


class Mode(StrEnum):
    """How the link handles connections."""

    PASS = "pass"
    """Bytes pass, with the configured delay and bandwidth."""
    REFUSE = "refuse"
    """Open connections are reset, new ones refused: the server's machine is up, the server is down."""
    BLACK_HOLE = "black hole"
    """Open connections stay open, new ones are accepted, and nothing is forwarded, not even the close of a connection.
    Data in flight arrives when the link passes again, as with TCP's retransmissions."""
    HANG_UP = "hang up"
    """Open connections are reset, new ones accepted and closed, as by a load balancer without servers."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counters of the link; bytes are counted when they are forwarded."""

    up: int
    """Bytes from client to server."""
    down: int
    """Bytes from server to client."""
    open: int
    """Connections open now."""
    accepted: int
    """Connections accepted so far."""


@dataclass(slots=True)
class _Direction:
    """One direction of the link, for all connections: its counter, and when it is free again."""

    moved: int = 0
    free_at: float = 0.0


@dataclass(eq=False, slots=True)
class _Connection:
    """The socket to the client and the socket to the server."""

    client: socket.socket
    server: socket.socket = field(default_factory=socket.socket)

    def close(self, *, reset: bool) -> None:
        """Close both sides, with FIN or with RST. No task may still wait on them."""
        for side in (self.client, self.server):
            if reset:
                with contextlib.suppress(OSError):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            side.close()


class Link:
    """A listener on a free loopback port that forwards connections to a server, or does not. It runs in its own thread
    with an event loop, so that blocking and asynchronous tests can use it, and neither a blocked loop nor virtual time
    changes its delays. Methods return when the change has taken effect. It starts as PASS, at full speed; use it as a
    context manager, or close() it."""

    def __init__(self, host: str, port: int, at: tuple[str, int] = (LOOPBACK, 0)) -> None:
        """Forward to this host and port; `at` is the loopback address and port where it listens, 0: a free one."""
        self._target = host, port
        self._reserved = ReservedPort(*at)
        self.host, self.port = at[0], self._reserved.number
        self._mode = Mode.REFUSE
        self._delay = self._jitter = self._loss = 0.0
        self._chance = random.Random(7)
        self._bandwidth: float | None = None
        self._up, self._down = _Direction(), _Direction()
        self._connections: dict[_Connection, asyncio.Task[bool]] = {}
        self._accepted = 0
        self._changed = threading.Condition()
        self._passing = asyncio.Event()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"link to {host}:{port}", daemon=True
        )
        self._thread.start()
        self.carry()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def traffic(self) -> Traffic:
        return Traffic(self._up.moved, self._down.moved, len(self._connections), self._accepted)

    def carry(
        self, *, delay: float = 0.0, jitter: float = 0.0, loss: float = 0.0, bandwidth: float | None = None
    ) -> None:
        """Set PASS: `delay` in seconds each way, and up to `jitter` more; `bandwidth` in bytes/s each way, shared by
        all connections. `loss` is the share of lost chunks: a lost chunk stalls its connection until TCP resends it
        (RFC 6298: a round trip or LEAST_RESEND, twice as long for each further loss). A new connection is accepted at
        once, as by a satellite terminal."""
        self._delay, self._jitter, self._loss, self._bandwidth = delay, jitter, loss, bandwidth
        self._do(self._set(Mode.PASS))

    def refuse(self) -> None:
        self._do(self._set(Mode.REFUSE))

    def black_hole(self) -> None:
        self._do(self._set(Mode.BLACK_HOLE))

    def hang_up(self) -> None:
        self._do(self._set(Mode.HANG_UP))

    def cut(self) -> None:
        """Reset the open connections, in any mode; new ones are handled by the mode."""
        self._do(self._cut())

    def wait(self, condition: Callable[[Traffic], bool], timeout: float) -> Traffic:
        """Return the counters as soon as they meet the condition; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self.traffic), timeout):
                raise TimeoutError(f"not within {timeout:g} s; the link has seen {self.traffic}")
            return self.traffic

    def close(self) -> None:
        """Close all connections, the port and the thread; safe to call twice."""
        if self._loop.is_closed():
            return
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reserved.release()

    def _do(self, change: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(change, self._loop).result(CONTROL_TIMEOUT)

    async def _set(self, mode: Mode) -> None:
        self._mode = mode
        self._up.free_at = self._down.free_at = 0.0
        if mode is Mode.PASS:
            self._passing.set()
        else:
            self._passing.clear()
        if mode in (Mode.REFUSE, Mode.HANG_UP):
            await self._cut()
        if mode is Mode.REFUSE:
            self._stop_listening()
        elif self._listener is None:
            self._listener = self._reserved.listener()
            self._listener.setblocking(False)
            self._listener.listen()
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _stop_listening(self) -> None:
        if self._listener:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _cut(self) -> None:
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(
            BlockingIOError, ConnectionError
        ):  # the client may have disconnected already
            client, _ = listener.accept()
            connection = _Connection(client)
            for side in (connection.client, connection.server):
                side.setblocking(False)
                # The kernel delays a small write until the previous one is acknowledged, up to 40 ms.
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._serve(connection))
            # Not in the task itself: a task that is cancelled before its first step runs no `finally`.
            task.add_done_callback(functools.partial(self._finish, connection))
            self._connections[connection] = task
            self._accepted += 1
            self._tell()

    def _finish(self, connection: _Connection, task: asyncio.Task[bool]) -> None:
        reset = True
        try:
            reset = task.cancelled() or not task.result()
        finally:
            connection.close(reset=reset)
            del self._connections[connection]
            self._tell()

    async def _serve(self, connection: _Connection) -> bool:
        """Forward a connection until its end; return True if both sides closed it in order."""
        if self._mode is Mode.HANG_UP:
            return True
        await self._passing.wait()
        in_order = await self._exchange(connection)
        # A reset of one side reaches the other only while the link passes bytes.
        await self._passing.wait()
        return in_order

    async def _exchange(self, connection: _Connection) -> bool:
        """Forward both directions until both sides have sent FIN; False if one of them refused or was reset."""
        in_order = True
        try:
            await self._loop.sock_connect(connection.server, self._target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(connection.client, connection.server, self._up), name="up")
                both.create_task(self._carry(connection.server, connection.client, self._down), name="down")
        except* OSError:
            in_order = False
        return in_order

    async def _carry(self, source: socket.socket, sink: socket.socket, direction: _Direction) -> None:
        """Forward one side's bytes, in order, each chunk `delay` after its arrival, up to and with FIN."""
        in_flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(IN_FLIGHT)

        async def fetch() -> None:
            while True:
                chunk = await self._loop.sock_recv(source, CHUNK)
                await in_flight.put((self._loop.time() + self._transit_time(), chunk))
                if not chunk:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(fetch(), name="fetch")
            while True:
                due, chunk = await in_flight.get()
                await self._hold(due)
                if not chunk:
                    sink.shutdown(socket.SHUT_WR)
                    return
                await self._deliver(chunk, sink, direction)

    def _transit_time(self) -> float:
        """Return the seconds that a chunk takes in one direction. Later chunks of its connection do not overtake it."""
        seconds = self._delay + self._chance.uniform(0, self._jitter)
        resend = max(LEAST_RESEND, 2 * self._delay)
        while self._chance.random() < self._loss:
            seconds, resend = seconds + resend, 2 * resend
        return seconds

    async def _deliver(self, chunk: bytes, sink: socket.socket, direction: _Direction) -> None:
        """Write a chunk in pieces, as the bandwidth and the mode of the link allow."""
        while chunk:
            size = len(chunk)
            if self._bandwidth is not None:
                size = max(1, min(size, int(self._bandwidth / TICKS)))
                direction.free_at = max(direction.free_at, self._loop.time()) + size / self._bandwidth
                await self._hold(direction.free_at)
            await self._passing.wait()
            await self._loop.sock_sendall(sink, chunk[:size])
            direction.moved += size
            self._tell()
            chunk = chunk[size:]

    async def _hold(self, due: float) -> None:
        """Wait until this time of the loop's clock, and until the link passes bytes."""
        await self._passing.wait()
        while (remaining := due - self._loop.time()) > 0:
            await asyncio.sleep(remaining)
            await self._passing.wait()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
