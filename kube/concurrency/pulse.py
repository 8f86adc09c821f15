"""A moment that any number of tasks wait for: each wait ends with the next beat."""

from __future__ import annotations

import asyncio


class Pulse:
    """`beat` wakes all who wait now; who waits later waits for the next one."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Done with the next beat. It counts from the call on, not from when somebody first awaits it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter
