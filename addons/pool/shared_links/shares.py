"""How fast lent ways may carry: each borrower has a share, all together have one, and this node goes first. Pure."""

from __future__ import annotations

from collections.abc import Callable

OF_BORROWER = 2
"""One borrower has one part in so many of all that is lent."""
AHEAD = 1.0
"""Seconds by which what this node itself sends and receives may hold borrowers up: they wait, and are not shut out."""


class LentRate:
    """A rate, and until when what it has let pass takes."""

    def __init__(self, rate: float) -> None:
        """`rate` is in bytes a second."""
        self._rate = rate
        self._free = float("-inf")
        """When all that passed would have been carried, in monotonic seconds."""

    def take(self, size: int, now: float) -> float:
        """Have so many bytes wait their turn: seconds until they may go on."""
        self._free = max(self._free, now) + size / self._rate
        return self._free - now

    def give_way(self, size: int, now: float) -> None:
        """Note that so many bytes have passed without waiting: what waits does so for longer, up to AHEAD."""
        begin = max(self._free, now)
        self._free = max(begin, min(begin + size / self._rate, now + AHEAD))


class LentRates:
    """The share of all, and that of each borrower."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        """`rate` is in kilobytes a second. `clock` is monotonic."""
        self._rate = 1000.0 * rate
        self._clock = clock
        self._all = LentRate(self._rate)
        self._borrowers: dict[str, LentRate] = {}

    def own(self, size: int) -> None:
        """Count what this node itself sent or received."""
        self._all.give_way(size, self._clock())

    def wait(self, borrower: str, size: int) -> float:
        """Seconds until so many bytes of a borrower may go on."""
        now = self._clock()
        share = self._borrowers.get(borrower)
        if share is None:
            share = self._borrowers[borrower] = LentRate(self._rate / OF_BORROWER)
        return max(share.take(size, now), self._all.take(size, now))

    def forget(self, borrower: str) -> None:
        """The borrower has no way any more."""
        self._borrowers.pop(borrower, None)
