"""Drills: a person takes the cloud away from a running hub, or makes the link slow, to test the node.

A drill ends by itself. Nothing of it is on disk, so a restart ends it, too.
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
from kube.concurrency.notifier import comes_within

DEFAULT_MINUTES = 10
MAX_MINUTES = 60
"""The longest drill: a forgotten one ends before it becomes an outage."""
MINUTE = 60.0
"""Seconds; tests have shorter ones."""
MAX_KBPS = 10_000_000
MAX_MS = 60_000
"""The slowest simulated link: a slower one is an outage."""

logger = logging.getLogger(__name__)


class DrillKind(StrEnum):
    """The kinds of drills of the link."""

    OFFLINE = "offline"
    SLOW = "slow"


class Drill(NamedTuple):
    """One drill. `kbps` are kilobits a second from the cloud, `ms` milliseconds until an answer begins."""

    kind: DrillKind
    until: datetime.datetime
    kbps: int = 0
    ms: int = 0

    def __str__(self) -> str:
        how = self.kind if self.kind is DrillKind.OFFLINE else f"slow ({self.kbps} kbit/s, {self.ms} ms)"
        return f"the link is {how} until {self.until:%H:%M:%S}"


class Drills:
    """The running drill, if any. The link consults it for each connection to the cloud."""

    def __init__(self, changed: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`changed` is called when a drill begins and when one ends."""
        self.are_allowed = False
        """Whether the operator wants drills on this node, or sits at an interface of mitmproxy."""
        self.current: Drill | None = None
        self._changed = changed
        self._clock = clock
        self._over = asyncio.Event()
        """Set when the drill is over for which something waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._free = 0.0
        """When the slow link has sent all that it took, in monotonic seconds."""

    @property
    def is_offline(self) -> bool:
        return self.current is not None and self.current.kind is DrillKind.OFFLINE

    @property
    def refusal(self) -> OSError | None:
        """The kernel's error for a connection now; None unless the drill cuts the link."""
        return (
            ConnectionRefusedError(errno.ECONNREFUSED, f"a drill: {self.current}")
            if self.is_offline
            else None
        )

    def begin(self, kind: DrillKind, minutes: int = DEFAULT_MINUTES, kbps: int = 0, ms: int = 0) -> None:
        """Begin a drill, and end a running one. ValueError, with a text for the operator, for a bad number."""
        if not 1 <= minutes <= MAX_MINUTES:
            raise ValueError(f"a drill lasts 1 to {MAX_MINUTES} minutes")
        if kind is DrillKind.SLOW and not (1 <= kbps <= MAX_KBPS and 0 <= ms <= MAX_MS):
            raise ValueError(f"a slow link has 1 to {MAX_KBPS} kbit/s and 0 to {MAX_MS} ms")
        self._stop()
        until = datetime.datetime.now().astimezone() + datetime.timedelta(seconds=minutes * MINUTE)
        self.current, self._free = Drill(kind, until, kbps, ms), 0.0
        self._timer = asyncio.get_running_loop().call_later(minutes * MINUTE, self.end)
        metrics.DRILL.set(1)
        logger.warning("drill started: %s", self.current)
        self._changed()

    def end(self) -> None:
        """End the running drill, if any."""
        if self.current is not None:
            self._stop()
            logger.warning("drill ended")
            self._changed()

    def close(self) -> None:
        self._stop()

    async def pace(self, size: int, *, is_first: bool) -> None:
        """Return when a slow link would have brought so many bytes; ConnectionResetError where the link is away.

        `is_first`: no bytes came for a while, so the link's latency counts for these.
        """
        drill = self.current
        if drill is None:
            return
        if drill.kind is DrillKind.OFFLINE:
            raise ConnectionResetError(errno.ECONNRESET, f"a drill: {drill}")
        now = self._clock()
        self._free = max(self._free, now) + size * 8 / (drill.kbps * 1000)
        delay = self._free - now + (drill.ms / 1000 if is_first else 0)
        await comes_within(delay, self._over.wait())

    def describe(self) -> dict[str, Any]:
        """For reports: the drill's effect on the link, `online` without one."""
        drill = self.current
        report: dict[str, Any] = {"allowed": self.are_allowed, "link": drill.kind if drill else "online"}
        if drill is not None:
            report |= {"until": drill.until.isoformat(timespec="seconds"), "text": str(drill)}
        if drill is not None and drill.kind is DrillKind.SLOW:
            report |= {"kbps": drill.kbps, "ms": drill.ms}
        return report

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._over.set()
        self._over = asyncio.Event()
        self.current = None
        metrics.DRILL.set(0)
