"""Exponential backoff with jitter for retries, reset after a time without failures."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_DELAY = 0.8
"""Seconds to the first retry, as in client-go's reflector."""
LONGEST_DELAY = 30.0
"""The longest delay in seconds, as in client-go's reflector."""
FORGET_AFTER = 120.0
"""Seconds without a failure after which the delay is FIRST_DELAY again, as in client-go's reflector."""


@dataclass(slots=True)
class Backoff:
    """Delays that double from `first` to `last` seconds, each with a jitter of up to its own length."""

    first: float = FIRST_DELAY
    last: float = LONGEST_DELAY
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    _delay: float = field(default=0.0, init=False)
    _failed_at: float = field(default=float("-inf"), init=False)

    def next(self, retry_after: float | None = None) -> float:
        """The seconds to wait after a further failure, at least `retry_after`. The jitter keeps nodes from
        retrying together."""
        now = self.clock()
        if now - self._failed_at > FORGET_AFTER:
            self._delay = 0.0
        self._failed_at = now
        self._delay = min(self._delay * 2, self.last) if self._delay else self.first
        return max(self._delay, retry_after or 0.0) * (1 + self.jitter())

    def forget(self) -> None:
        """Reset the delay to the first one."""
        self._delay = 0.0
