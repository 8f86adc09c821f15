"""Schedules the handling of clients' input, so that no client monopolizes the event loop.

A packet may contain 2,000 requests, each a millisecond of work. With such packets on many connections, a pod could make
kubelet wait for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class ClientScheduler:
    """Schedules the clients of a listener one at a time, round robin by address.

    The event loop polls for other work between two steps. So other work, such as kubelet's at another listener, waits
    for at most one step, however many clients have sent something.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, deque[Callable[[], None]]] = {}
        """Scheduled callbacks, by address, in the order in which the addresses are served."""
        self._is_busy = False
        """Whether a step runs, or is scheduled, in this iteration of the event loop."""

    def schedule(self, address: object, step: Callable[[], None]) -> None:
        """Schedule a client of the address. Call `step` at once if no other step has run in this iteration of the event
        loop.
        """
        if self._is_busy:
            self._waiting.setdefault(address, deque()).append(step)
            return
        self._is_busy = True
        asyncio.get_running_loop().call_soon(self._run_next)
        step()

    def _run_next(self) -> None:
        if not self._waiting:
            self._is_busy = False
            return
        address = next(iter(self._waiting))
        waiting = self._waiting.pop(address)
        step = waiting.popleft()
        if waiting:
            self._waiting[address] = waiting  # served after all other addresses
        asyncio.get_running_loop().call_soon(self._run_next)
        step()
