"""Retry-After: how long a server asks clients to wait (RFC 9110, 10.2.3). It applies to all requests of one queue."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from kube.bounds import reached
from kube.errors import too_many_requests

MAX_RETRY_AFTER = 60
"""The longest wait in seconds. kube-apiserver's priority and fairness asks for at most 32; a proxy may ask for a
day."""
THROTTLING_STATUSES = frozenset({429, 503})
"""The codes whose Retry-After applies to the queue. With others it applies to one request, such as one for a too new
version."""


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds that a response asks clients to wait, at most MAX_RETRY_AFTER; None if it does not ask."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            date = parsedate_to_datetime(text)
            seconds = (date - datetime.datetime.now(date.tzinfo)).total_seconds()
        except (ValueError, OverflowError):
            return None
    return bounded(seconds)


def bounded(seconds: float) -> int | None:
    """Round up to seconds, at most MAX_RETRY_AFTER; None for a time that has passed."""
    if seconds > MAX_RETRY_AFTER:
        reached("time that a server asks for")
        return MAX_RETRY_AFTER
    return math.ceil(seconds) if seconds > 0 else None


class Pauses:
    """The times until which each queue sends no request, in the event loop's time."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def check(self, queue: str) -> None:
        """Raise StatusError 429 while the queue must wait. Its `retry_after` is the remaining time in seconds."""
        left = self._until.get(queue, 0.0) - asyncio.get_running_loop().time()
        if left > 0:
            raise too_many_requests("the server asks for time", math.ceil(left))
        self._until.pop(queue, None)

    def note_retry_after(self, queue: str, code: int, seconds: int | None) -> None:
        """Note the wait that a server's response asks for; None for none."""
        if code in THROTTLING_STATUSES and seconds is not None:
            until = asyncio.get_running_loop().time() + seconds
            self._until[queue] = max(until, self._until.get(queue, 0.0))
