"""Drills: an operator cuts or slows a running hub's link to the cloud, to test the node.

A drill ends after a given time. It is not stored on disk, so a restart ends it, too.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from addons.telemetry import metrics
from kube.concurrency.notifier import completes_within

DEFAULT_MINUTES = 10
MAX_MINUTES = 60
"""Maximum duration of a drill in minutes: a forgotten drill must not become an outage."""
MINUTE = 60.0
"""Seconds in a minute; tests use fewer."""
MAX_KBPS = 10_000_000
MAX_MS = 60_000
"""Maximum latency of a simulated link in milliseconds: more would be an outage."""

logger = logging.getLogger(__name__)


class DrillKind(StrEnum):
    """Kinds of drills."""

    OFFLINE = "offline"
    SLOW = "slow"


class Drill(NamedTuple):
    """One drill. `kbps`: kilobits per second from the cloud. `ms`: milliseconds of latency before an answer begins."""

    kind: DrillKind
    until: datetime.datetime
    kbps: int = 0
    ms: int = 0

    def __str__(self) -> str:
        how = self.kind if self.kind is DrillKind.OFFLINE else f"slow ({self.kbps} kbit/s, {self.ms} ms)"
        return f"the link is {how} until {self.until:%H:%M:%S}"


class Drills:
    """The running drill, if any. The link consults it for each connection to the cloud."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.on_change: list[Callable[[], None]] = []
        """Called when a drill begins or ends."""
        self.are_allowed = False
        """Whether drills are permitted: by the operator's option, or because mitmproxy's interface is open."""
        self.current: Drill | None = None
        self._clock = clock
        self._ended = asyncio.Event()
        """Set when the current drill ends; replaced for each drill."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle_at = 0.0
        """Monotonic time in seconds at which the simulated link has transmitted all accepted bytes."""

    @property
    def is_offline(self) -> bool:
        return self.current is not None and self.current.kind is DrillKind.OFFLINE

    @property
    def refusal(self) -> OSError | None:
        """The error with which a new connection fails now; None unless a drill cuts the link."""
        return (
            ConnectionRefusedError(errno.ECONNREFUSED, f"a drill: {self.current}")
            if self.is_offline
            else None
        )

    def begin(self, kind: DrillKind, minutes: int = DEFAULT_MINUTES, kbps: int = 0, ms: int = 0) -> None:
        """Begin a drill, and end a running one. ValueError, with a text for the operator, for a number out of range."""
        if not 1 <= minutes <= MAX_MINUTES:
            raise ValueError(f"a drill must last 1 to {MAX_MINUTES} minutes")
        if kind is DrillKind.SLOW and not (1 <= kbps <= MAX_KBPS and 0 <= ms <= MAX_MS):
            raise ValueError(f"a slow link has 1 to {MAX_KBPS} kbit/s and 0 to {MAX_MS} ms")
        self._stop()
        until = datetime.datetime.now().astimezone() + datetime.timedelta(seconds=minutes * MINUTE)
        self.current, self._idle_at = Drill(kind, until, kbps, ms), 0.0
        self._timer = asyncio.get_running_loop().call_later(minutes * MINUTE, self.end)
        metrics.DRILL.set(1)
        logger.warning("drill started: %s", self.current)
        self._notify()

    def end(self) -> None:
        """End the running drill, if any."""
        if self.current is not None:
            self._stop()
            logger.warning("drill ended")
            self._notify()

    def close(self) -> None:
        self._stop()

    async def pace(self, size: int, *, is_first: bool) -> None:
        """Return when the simulated link would have delivered `size` bytes. ConnectionResetError if the drill cuts the
        link.

        `is_first`: these bytes follow a pause, so the link's latency is added.
        """
        drill = self.current
        if drill is None:
            return
        if drill.kind is DrillKind.OFFLINE:
            raise ConnectionResetError(errno.ECONNRESET, f"a drill: {drill}")
        now = self._clock()
        self._idle_at = max(self._idle_at, now) + size * 8 / (drill.kbps * 1000)
        delay = self._idle_at - now + (drill.ms / 1000 if is_first else 0)
        await completes_within(delay, self._ended.wait())

    def describe(self) -> dict[str, Any]:
        """Return the drill for reports; its `link` is `online` without a drill."""
        drill = self.current
        report: dict[str, Any] = {"allowed": self.are_allowed, "link": drill.kind if drill else "online"}
        if drill is not None:
            report |= {"until": drill.until.isoformat(timespec="seconds"), "text": str(drill)}
        if drill is not None and drill.kind is DrillKind.SLOW:
            report |= {"kbps": drill.kbps, "ms": drill.ms}
        return report

    def _notify(self) -> None:
        for changed in self.on_change:
            changed()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ended.set()
        self._ended = asyncio.Event()
        self.current = None
        metrics.DRILL.set(0)
