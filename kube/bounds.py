"""A mapping of bounded size, and a callback for each bound that drops or refuses something, which feeds the
metrics.

`docs/bounds.md` has a row for each bound. A bound with a metric of its own is not reported here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Call the listener, from now on, with the name of each bound that is reached."""
    _listeners.append(listener)


def reached(bound: str) -> None:
    """Report that a bound was reached, and something was dropped or refused. `bound` is its name in logs and
    metrics."""
    for listener in _listeners:
        listener(bound)


class Recent[K, V](OrderedDict[K, V]):
    """A mapping with a maximum number of keys. Beyond it, the mapping evicts the least recently used key and
    reports the bound."""

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
        """Return the value of a key and mark the key as the most recently used one; None if the key is absent."""
        if key in self:
            self.move_to_end(key)
        return self.get(key)
