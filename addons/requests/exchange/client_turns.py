"""What one client has handled in one go, and when the next one is: others go between.

mitmproxy handles all that it has read of a connection: 64 KiB hold 2,000 requests, each of a millisecond of the event
loop, and a pod could make kubelet wait for seconds by one packet.
"""

from __future__ import annotations

AT_ONCE = 25
"""Requests of one client's connection of HTTP/2 that are handled in one go."""
_OTHERS = 40
"""Frames that cost as much as a request: a PING, SETTINGS, a window's update."""
_HEAD = 9
"""Bytes of a frame's head: its length, type, flags and stream (RFC 9113, 4.1)."""
_HEADERS = 1
PREFACE = 24
"""Bytes that a client begins with (RFC 9113, 3.4)."""
PAUSE = 0.025
"""Seconds between two goes of all clients of a listener, where there is more to handle. Others go meanwhile."""


class ClientTurns:
    """Gives each go of a client a time of its own."""

    def __init__(self) -> None:
        self._last = 0.0
        """When the last turn is that was given."""

    def next(self, now: float) -> float:
        """Seconds until the next go is this client's."""
        self._last = max(now, self._last) + PAUSE
        return self._last - now

    def is_busy(self, now: float) -> bool:
        """Whether somebody waits for a turn."""
        return self._last > now


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
