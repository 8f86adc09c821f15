"""Bytes a second to components, and to and from the cloud, from the counts at two moments."""

from __future__ import annotations

import time
from collections.abc import Callable

from addons.telemetry.component_traffic import ComponentTraffic, link_bytes

SPAN = 2.0
"""Seconds between two moments at least: a rate over less time jumps."""

type Rate = tuple[float | None, float | None, float | None]


class Rates:
    """To components, from the cloud, to the cloud. None until two moments are known."""

    def __init__(self, traffic: ComponentTraffic, clock: Callable[[], float] = time.monotonic) -> None:
        self._traffic = traffic
        self._clock = clock
        self._before = self._counts()
        self._rate: Rate = (None, None, None)

    def now(self) -> Rate:
        """Since the last moment, which is some seconds ago; after a long silence a mean over it."""
        counts = self._counts()
        seconds = counts[0] - self._before[0]
        if seconds >= SPAN:
            sent, down, up = (
                (now - then) / seconds for now, then in zip(counts[1:], self._before[1:], strict=True)
            )
            self._before, self._rate = counts, (sent, down, up)
        return self._rate

    def _counts(self) -> tuple[float, int, int, int]:
        up, down = link_bytes()
        return self._clock(), self._traffic.sent(), down, up
