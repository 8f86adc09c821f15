"""Reports that a bound was reached, to the metrics of the process, and a mapping with a bound.

`docs/bounds.md` has a row for each bound. A bound with a metric of its own needs no report here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Call the listener with the name of each bound that is reached from now on."""
    _listeners.append(listener)


def reached(bound: str) -> None:
    """Report that a bound was reached, and something was dropped or refused. `bound` is its name, for people."""
    for listener in _listeners:
        listener(bound)


class Recent[K, V](OrderedDict[K, V]):
    """A mapping of at most so many keys. Beyond that the least recently used one is dropped, and the bound reported."""

    def __init__(self, most: int, bound: str) -> None:
        super().__init__()
        self._most = most
        self._bound = bound

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
            reached(self._bound)

    def use(self, key: K) -> V | None:
        """The value of a key, which is the most recently used one then; None without one."""
        if key in self:
            self.move_to_end(key)
        return self.get(key)
