"""The clock of a history: the hub's monotonic time is the time of the history's loop.

On the computer's clock a watch of an hour would end at once, and two restores an hour apart would be one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from addons.views.reviews import Reviews
from kube.concurrency.backoff import Backoff


@contextmanager
def monotonic(clock: Callable[[], float]) -> Iterator[None]:
    """Replace the monotonic clock by `clock`, also in defaults that were bound at import."""
    real, bound = time.monotonic, (Backoff.__init__, Reviews.__init__)
    defaults = [each.__defaults__ or () for each in bound]
    for each, were in zip(bound, defaults, strict=True):
        each.__defaults__ = tuple(clock if value is real else value for value in were)
    try:
        with patch.object(time, "monotonic", clock):
            yield
    finally:
        for each, were in zip(bound, defaults, strict=True):
            each.__defaults__ = were
