"""Rates to components and to and from the cloud, and a timeline of the last hours: link, bytes and requests, as bars
with tooltips.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import batched
from typing import NamedTuple

from addons.telemetry.component_traffic import ComponentTraffic, link_bytes
from addons.ui.page.markup import text
from addons.ui.reports.text import plural
from addons.ui.running_hub import RunningHub
from kube.tables.cells import size

MINUTE = 60.0
MINUTES = 6 * 60
"""Minutes of history, some 100 bytes each."""
MINUTES_PER_BAR = 5
"""Minutes per bar."""
BARS = MINUTES // MINUTES_PER_BAR
WIDTH, HEIGHT, LINK = 10, 40, 8
"""Sizes in the picture: a bar with its gap, the height for bytes, and the height of the band for the link below."""
SPAN = 2.0
"""Minimum seconds between two samples: a rate over less time fluctuates."""

type Rate = tuple[float | None, float | None, float | None]


class Rates:
    """Bytes per second to components, from the cloud, and to the cloud. None before the second sample."""

    def __init__(self, traffic: ComponentTraffic, clock: Callable[[], float] = time.monotonic) -> None:
        self._traffic = traffic
        self._clock = clock
        self._before = self._counts()
        self._rate: Rate = (None, None, None)

    def now(self) -> Rate:
        """Return the rates between the last two samples, usually some seconds apart; after a pause, the mean over
        it.
        """
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


class Minute(NamedTuple):
    """The traffic of one minute. `end` is Unix time in seconds."""

    end: float
    was_up: bool
    """Whether the link was up throughout the minute."""
    bytes: int
    requests: int


class Timeline:
    """Records each minute's traffic. `run` runs while the admin port is open."""

    def __init__(self, hub: RunningHub, clock: Callable[[], float] = time.time) -> None:
        self._hub = hub
        self._clock = clock
        self.minutes: deque[Minute] = deque(maxlen=MINUTES)
        self._before = self._counts()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(MINUTE)
            self.tick()

    def tick(self) -> None:
        """Record the minute that has just ended."""
        counts = self._counts()
        changed = self._hub.records.link.seconds() < MINUTE and len(self.minutes) > 0
        was_up = self._hub.cloud.is_up and not changed
        passed = (now - then for now, then in zip(counts, self._before, strict=True))
        self.minutes.append(Minute(self._clock(), was_up, *passed))
        self._before = counts

    def html(self) -> str:
        """Render the bars, newest at the right, each with a tooltip."""
        if not self.minutes:
            return '<p class="none">The first minute is not over yet.</p>'
        bars = [_Bar(list(minute)) for minute in batched(reversed(self.minutes), MINUTES_PER_BAR)]
        most = max(1, *(bar.bytes for bar in bars))
        drawn = "".join(bar.drawn(BARS - 1 - at, most) for at, bar in enumerate(bars))
        gone = sum(bar.minutes_away for bar in bars)
        said = f"{plural(gone, 'minute')} without the cloud" if gone else "the cloud was there all the time"
        hours = f"{len(self.minutes)} min" if len(self.minutes) < 120 else f"{len(self.minutes) // 60} h"
        return (
            f"<p>The last {hours}: {text(said)}, {text(size(sum(bar.bytes for bar in bars)))} over the link, "
            f"{plural(sum(bar.requests for bar in bars), 'request')}. Point at a bar.</p>"
            f'<svg class="timeline" viewBox="0 0 {BARS * WIDTH} {HEIGHT + LINK + 2}" preserveAspectRatio="none" '
            f'role="img" aria-label="{text(said)}">{drawn}</svg>'
        )

    def _counts(self) -> tuple[int, int]:
        components = self._hub.records.traffic.components().values()
        return sum(link_bytes()), sum(component.totals.requests for component in components)


class _Bar:
    def __init__(self, minutes: Sequence[Minute]) -> None:
        """`minutes`: newest first."""
        self._minutes = minutes
        self.bytes = sum(minute.bytes for minute in minutes)
        self.requests = sum(minute.requests for minute in minutes)
        self.minutes_away = sum(not minute.was_up for minute in minutes)

    def drawn(self, at: int, most: int) -> str:
        left, tall = at * WIDTH, max(1 if self.bytes else 0, round(HEIGHT * self.bytes / most))
        ends = (self._minutes[-1].end - MINUTE, self._minutes[0].end)
        clock = " to ".join(datetime.datetime.fromtimestamp(end).strftime("%H:%M") for end in ends)
        away = f", {plural(self.minutes_away, 'minute')} without the cloud" if self.minutes_away else ""
        tooltip = f"{clock}: {size(self.bytes)}, {plural(self.requests, 'request')}{away}"
        return (
            f"<g><title>{text(tooltip)}</title>"
            f'<rect class="all" x="{left}" y="0" width="{WIDTH}" height="{HEIGHT + LINK + 2}"/>'
            f'<rect class="bytes" x="{left}" y="{HEIGHT - tall}" width="{WIDTH - 2}" height="{tall}"/>'
            f'<rect class="{"away" if self.minutes_away else "there"}" x="{left}" y="{HEIGHT + 2}" '
            f'width="{WIDTH - 2}" height="{LINK}"/></g>'
        )
