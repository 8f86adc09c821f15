"""Bounds how many writes begin in any one second, so that a binding never rolls out more at once."""

from __future__ import annotations

import asyncio
from collections import deque


class WriteLimit:
    """A sliding window: in no period begin more than `count` writes. So many may begin at once."""

    def __init__(self, count: int, period: float = 1.0) -> None:
        """`period` is in seconds."""
        self._period = period
        self._begun: deque[float] = deque(maxlen=count)
        """The loop's times of the last writes, or those to come that are reserved."""

    def reserve(self) -> float:
        """The seconds to wait before the next write may begin; its place is taken."""
        now = asyncio.get_running_loop().time()
        at = now
        if len(self._begun) == self._begun.maxlen:
            at = max(now, self._begun[0] + self._period)
        self._begun.append(at)
        return at - now
