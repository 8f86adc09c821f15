"""Counts each component's requests and bytes in the last hour and today, for the interfaces. Prometheus has metrics."""

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
"""Maximum components counted by name, because clients can invent User-Agents. Further ones are counted as `other`."""
MAX_READS = 50
"""Maximum resources recorded as read by one component."""
HOUR = 60
"""Minutes covered by a report."""


@dataclass(slots=True)
class Totals:
    """Counts since the hub started. `sent`: body bytes to the component. `fetched`: body bytes from the cloud for it
    alone.

    `copied`: bytes answered from copies, without errors and without servers' answers.
    """

    requests: int = 0
    errors: int = 0
    sent: int = 0
    fetched: int = 0
    copied: int = 0

    def since(self, before: Totals) -> Totals:
        """Return the difference to an earlier count."""
        return Totals(*map(sub, astuple(self), astuple(before)))


@dataclass(slots=True)
class ComponentCounts:
    """The counts of one component. The answering code adds each piece to `totals`."""

    totals: Totals = field(default_factory=Totals)
    watches: int = 0
    """Number of open watches."""
    last_seen: float = 0.0
    """Unix time in seconds of the last request."""
    reads: dict[str, None] = field(default_factory=dict)
    """The resources, with their groups, that the component read, as keys in order."""


class ComponentTraffic:
    """The counts of all components. Periods advance with each request; the hub's own probes send one every few
    seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` returns Unix time in seconds."""
        self._now = now
        self._components: dict[str, ComponentCounts] = {}
        self._minutes: deque[tuple[int, dict[str, Totals]]] = deque(maxlen=HOUR)
        """The totals at the beginning of each of the last minutes that had a request."""
        self._day = date.fromtimestamp(now())
        self._link_at_midnight = link_bytes()

    def began(self, component: str, read: str, *, is_error: bool, is_watch: bool) -> ComponentCounts:
        """Count a request. Return the component's counts, to which the answering code adds the bytes."""
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
        """Return each component's traffic in the last hour; idle components are omitted."""
        start = int(self._now() // 60) - HOUR
        before = next((totals for minute, totals in self._minutes if minute >= start), {})
        sums = {
            name: counts.totals.since(before.get(name, Totals())) for name, counts in self._components.items()
        }
        return {name: totals for name, totals in sums.items() if totals != Totals()}

    def sent(self) -> int:
        """Return the bytes sent to all components except the hub itself, since the start."""
        return sum(component.totals.sent for name, component in self._components.items() if name != HUB)

    def copied(self) -> int:
        """Return the bytes sent to all components except the hub itself from copies, since the start."""
        return sum(component.totals.copied for name, component in self._components.items() if name != HUB)

    def link_today(self) -> tuple[int, int]:
        """Return the bytes to and from the cloud since midnight, or since the start."""
        self._advance()
        up, down = link_bytes()
        return up - self._link_at_midnight[0], down - self._link_at_midnight[1]

    def _advance(self) -> float:
        """Record the totals at each new minute, and the link's bytes at midnight. Return the time."""
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
    """Return the body bytes sent to all servers, and received from them, since the process started."""
    up = down = 0.0
    for sample in next(iter(metrics.UPSTREAM_BYTES.collect())).samples:
        if sample.labels["direction"] == "up":
            up += sample.value
        else:
            down += sample.value
    return int(up), int(down)
