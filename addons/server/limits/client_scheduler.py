"""Schedules the handling of clients' input, so that others come between.

A client may send 2,000 requests in a packet, each of a millisecond of the event loop. With that, or with a packet in
each of many connections, a pod could make kubelet wait for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class ClientScheduler:
    """Schedules the clients of a listener one at a time, round robin by address.

    The event loop looks for other ready work between two steps. So every waiter for the loop, kubelet at another
    listener too, waits for one step, however many clients have sent something, and however slow the machine is.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, deque[Callable[[], None]]] = {}
        """The requested callbacks, by address; the next address comes first."""
        self._is_taken = False
        """A client's step is due in this iteration of the loop."""

    def ask(self, address: object, go: Callable[[], None]) -> None:
        """Schedule a client of the address: at once if no other was served in this iteration of the loop."""
        if self._is_taken:
            self._waiting.setdefault(address, deque()).append(go)
            return
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._pass_on)
        go()

    def _pass_on(self) -> None:
        if not self._waiting:
            self._is_taken = False
            return
        address = next(iter(self._waiting))
        waiting = self._waiting.pop(address)
        go = waiting.popleft()
        if waiting:
            self._waiting[address] = waiting  # behind all others
        asyncio.get_running_loop().call_soon(self._pass_on)
        go()
