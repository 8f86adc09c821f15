"""What one client has handled in one go, and when the next one is: others go between.

mitmproxy handles all that it has read of a connection: 64 KiB hold 2,000 requests, each of a millisecond of the event
loop, and a pod could make kubelet wait for seconds by one packet, or by a packet in each of many connections.
"""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 4
"""Requests of one client's connection of HTTP/2 that are handled in one go."""
_OTHERS = 40
"""Frames that cost as much as a request: a PING, SETTINGS, a window's update."""
_HEAD = 9
"""Bytes of a frame's head: its length, type, flags and stream (RFC 9113, 4.1)."""
_HEADERS = 1
PREFACE = 24
"""Bytes that a client begins with (RFC 9113, 3.4)."""


class ClientTurns:
    """Has the clients of a listener go on one at a time, an address after the other.

    The event loop looks for what else is ready between two goes. So whoever waits for the loop, kubelet at another
    listener too, waits for one go, however many clients have sent something, and however slow the machine is.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}
        """The turns that were asked for, by address; the address that is next comes first."""
        self._is_taken = False
        """Somebody goes on in this round of the loop."""

    async def next(self, address: object) -> None:
        """Return when a client of the address may go on, until it waits for anything."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(address, deque()).append(turn)
            await turn
        else:
            self._is_taken = True
            loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        while self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn = turns.popleft()
            if turns:
                self._waiting[address] = turns  # behind all others
            if not turn.done():  # the connection is there still
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._pass_on)
                return
        self._is_taken = False


class Frames:
    """What a client has sent that is not handled yet."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._rest = PREFACE
        """How much of what comes next belongs to what was handed out."""

    def add(self, data: bytes) -> None:
        self._waiting += data

    def take(self) -> bytes:
        """The frames that may be handled in one go. The last one may not be whole yet."""
        at, requests = self._rest, 0.0
        while at + _HEAD <= len(self._waiting) and requests < AT_ONCE:
            requests += 1 if self._waiting[at + 3] == _HEADERS else 1 / _OTHERS
            at += _HEAD + int.from_bytes(self._waiting[at : at + 3])
        end = min(at, len(self._waiting))
        self._rest = at - end
        taken = bytes(self._waiting[:end])
        del self._waiting[:end]
        return taken

    @property
    def has_more(self) -> bool:
        """Whether a frame has come that was not handed out."""
        return len(self._waiting) >= self._rest + _HEAD
