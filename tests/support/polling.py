"""Polls conditions without notifications, for example in other processes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 90.0
"""Seconds that a test waits for an event that takes one to ten, and up to twenty after many failures of a leader."""


def eventually(
    check: Callable[[], object], what: str, patience: float = PATIENCE, pause: float = 0.05
) -> None:
    """Return when `check` returns a true value. TimeoutError shows the last value."""
    deadline = time.monotonic() + patience
    while not (found := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: {found!r} after {patience:g} s")
        time.sleep(pause)
