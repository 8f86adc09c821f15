"""The one thread that reads and writes the disk, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable

from kube.disk.database import DiskError

MAX_WAITING = 4096
"""The most queued calls. Each source has at most one, so a longer queue means that the disk hangs."""
DISK_TIMEOUT = 1.0
"""Seconds that a client, or the hub's start, waits for the disk before the hub continues without its content."""
CLOSE_TIMEOUT = 2.0
"""Seconds that the running call gets at shutdown: the hub must end within 5 s of SIGTERM."""


class DiskBusy(DiskError):
    """The queue of disk calls is full."""


class DiskWriter:
    """Runs blocking calls in order on one thread, and hands each result to the event loop that made the call."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    async def do[T](self, work: Callable[[], T]) -> T:
        """Return the result of `work` or raise its error. DiskBusy, without waiting, if the queue is full."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # None only where T is

        def run() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = work()
            except Exception as error:
                failed = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, failed)

        try:
            self._queue.put_nowait(run)
        except queue.Full:
            raise DiskBusy("too much waits for the disk") from None
        return await done

    def close(self, last: Callable[[], None]) -> None:
        """Run the queued calls and then `last`, for CLOSE_TIMEOUT at most."""
        try:
            self._queue.put_nowait(last)
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
