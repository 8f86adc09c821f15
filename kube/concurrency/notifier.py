"""A notification for any number of waiting tasks, which can be sent many times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


class Notifier:
    """`notify` wakes every task that waits now, in the order in which they began to wait. Later waits need another
    `notify`."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Return a future that the next `notify` completes, even if no task awaits the future yet."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        waiter.add_done_callback(self._forget)
        return waiter

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        self._waiters.pop(waiter, None)


async def completes_within(seconds: float | None, awaited: Awaitable[object]) -> bool:
    """Wait for an awaitable for at most `seconds` (None: no limit), and return whether it completed in time."""
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return False
    return True


async def wait_for_any(*waited: asyncio.Future[None]) -> None:
    """Return when the first of these futures is done, and cancel the others."""
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in waited:
            future.cancel()
