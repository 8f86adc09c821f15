"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Return `now` until the test sets another time."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    monotonic = __call__
