"""Retry-After: how long a server asks clients to wait (RFC 9110, 10.2.3), for all requests of one queue."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from kube.bounds import reached
from kube.errors import too_many_requests

MAX_RETRY_AFTER = 60
"""Seconds. kube-apiserver's priority and fairness asks for 32 at most; a page before it may ask for a day."""
ASKS = frozenset({429, 503})
"""The codes whose Retry-After is for all requests. With others it concerns one request: a version from the future."""


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds that an answer asks for, MAX_RETRY_AFTER at most; None for an answer that asks for none."""
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
    """Whole seconds, MAX_RETRY_AFTER at most; None for a time that has passed."""
    if seconds > MAX_RETRY_AFTER:
        reached("time that a server asks for")
        return MAX_RETRY_AFTER
    return math.ceil(seconds) if seconds > 0 else None


class Pauses:
    """Until when no request of a queue is sent, in the loop's time."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def check(self, queue: str) -> None:
        """StatusError 429 while the server of the queue has asked for time. Its `retry_after` is the remaining time."""
        left = self._until.get(queue, 0.0) - asyncio.get_running_loop().time()
        if left > 0:
            raise too_many_requests("the server asks for time", math.ceil(left))
        self._until.pop(queue, None)

    def note_retry_after(self, queue: str, code: int, seconds: int | None) -> None:
        """Note the time that a server's answer asks for, None for none."""
        if code in ASKS and seconds is not None:
            until = asyncio.get_running_loop().time() + seconds
            self._until[queue] = max(until, self._until.get(queue, 0.0))
