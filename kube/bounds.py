"""Says that a bound was reached. The metrics of a process listen and count.

`docs/security.md` has a row for each bound. A bound that something else counts already needs no word here.
"""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []


def listen(told: Callable[[str], None]) -> None:
    """Call `told` with the name of each bound that is reached from now on."""
    _listeners.append(told)


def reached(bound: str) -> None:
    """Tell that a bound was reached, and something dropped or refused. `bound` is its name, for people."""
    for told in _listeners:
        told(bound)
