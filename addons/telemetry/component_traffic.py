"""Counts each component's requests and bytes in the last hour and today, for people. Prometheus has the metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from datetime import date
from operator import sub

from addons.telemetry import metrics
from addons.telemetry.labels import HUB, OTHER

MAX_COMPONENTS = 100
"""Components that are counted by name. Clients invent User-Agents without end: all further ones count as `other`."""
MAX_READS = 50
"""Resources that a component is remembered to have read."""
HOUR = 60
"""Minutes that a report looks back."""


@dataclass(slots=True)
class Totals:
    """Since the hub started. `sent` are bytes of bodies to the component, `fetched` those of the cloud for it alone.

    `copied` are bytes from copies, without errors and without a server's answers.
    """

    requests: int = 0
    errors: int = 0
    sent: int = 0
    fetched: int = 0
    copied: int = 0

    def since(self, before: Totals) -> Totals:
        """The difference to an earlier count."""
        return Totals(*map(sub, astuple(self), astuple(before)))


@dataclass(slots=True)
class ComponentCounts:
    """One component's counts. The answering code adds to `totals` piece by piece."""

    totals: Totals = field(default_factory=Totals)
    watches: int = 0
    """Open now."""
    last_seen: float = 0.0
    """Seconds since the epoch."""
    reads: dict[str, None] = field(default_factory=dict)
    """The resources that the component got, listed or watched, with their groups."""


class ComponentTraffic:
    """All components. Each new request moves the clock on; the hub's own probes are requests too, every few seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` is in seconds since the epoch."""
        self._now = now
        self._components: dict[str, ComponentCounts] = {}
        self._minutes: deque[tuple[int, dict[str, Totals]]] = deque(maxlen=HOUR)
        """The totals at the beginning of each of the last minutes with a request."""
        self._day = date.fromtimestamp(now())
        self._link_at_midnight = link_bytes()

    def began(self, component: str, read: str, *, is_error: bool, is_watch: bool) -> ComponentCounts:
        """Count a request with or without an answer; the answering code counts on in the result."""
        now = self._advance()
        if component not in self._components and len(self._components) >= MAX_COMPONENTS:
            component = OTHER
        counts = self._components.setdefault(component, ComponentCounts())
        counts.last_seen = now
        counts.totals.requests += 1
        counts.totals.errors += is_error
        counts.watches += is_watch
        if read and len(counts.reads) < MAX_READS:
            counts.reads[read] = None
        return counts

    def components(self) -> dict[str, ComponentCounts]:
        return dict(self._components)

    def last_hour(self) -> dict[str, Totals]:
        """The traffic of each component in the last hour, idle ones left out."""
        start = int(self._now() // 60) - HOUR
        before = next((totals for minute, totals in self._minutes if minute >= start), {})
        sums = {
            name: counts.totals.since(before.get(name, Totals())) for name, counts in self._components.items()
        }
        return {name: totals for name, totals in sums.items() if totals != Totals()}

    def sent(self) -> int:
        """Bytes to all components since the start, those to the hub itself left out."""
        return sum(component.totals.sent for name, component in self._components.items() if name != HUB)

    def copied(self) -> int:
        """Bytes to all components that came from copies, since the start."""
        return sum(component.totals.copied for name, component in self._components.items() if name != HUB)

    def link_today(self) -> tuple[int, int]:
        """Bytes to and from the cloud since midnight, or since the start."""
        self._advance()
        up, down = link_bytes()
        return up - self._link_at_midnight[0], down - self._link_at_midnight[1]

    def _advance(self) -> float:
        """Remember the totals at the beginning of a minute, and those of the link at midnight; the time."""
        now = self._now()
        minute = int(now // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append(
                (minute, {name: replace(component.totals) for name, component in self._components.items()})
            )
            if (day := date.fromtimestamp(now)) != self._day:
                self._day, self._link_at_midnight = day, link_bytes()
        return now


def link_bytes() -> tuple[int, int]:
    """Bytes of bodies sent to all servers, and received from them, since the process began."""
    up = down = 0.0
    for sample in next(iter(metrics.UPSTREAM_BYTES.collect())).samples:
        if sample.labels["direction"] == "up":
            up += sample.value
        else:
            down += sample.value
    return int(up), int(down)
