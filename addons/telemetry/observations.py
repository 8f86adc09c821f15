"""What people may still ask about: the last requests and events, and who is told of each as it happens."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from typing import NamedTuple

from addons.telemetry.observation import Observation
from kube.bounds import reached
from kube.packed_text import Kept, packed

MAX_LINES = 3_000
"""Requests that are remembered, and as many events."""
MAX_HISTORY_BYTES = 1024 * 1024
"""Bytes of the remembered requests, and as many of events."""
PACKED_TOGETHER = 50
"""Lines that are packed into one piece, in a quarter of a millisecond. Each line by itself is some twenty objects, made
between those of the requests of a burst: they kept a tenth of the hub's memory from going back after 250 watches."""
MAX_WAITING = 1_000
"""Lines that wait for one who looks and reads too slowly. The oldest make way, and are counted."""

type Told = Callable[[Observation], None]


class WantedLines(NamedTuple):
    """Which lines somebody wants; what is "" selects nothing."""

    component: str = ""
    resource: str = ""
    """Plural, with or without its group."""
    namespace: str = ""
    verdict: str = ""
    events: bool = False
    since: float = 0.0
    """Seconds since the epoch."""

    def has(self, seen: Observation) -> bool:
        return (
            (self.events or not seen.is_event)
            and seen.at >= self.since
            and self.component in ("", seen.component)
            and self.resource in ("", seen.resource, seen.resource.partition(".")[0])
            and self.namespace in ("", seen.namespace)
            and self.verdict in ("", seen.verdict)
        )


class _Last:
    """The newest of its kind, packed but for the last few."""

    def __init__(self) -> None:
        self._newest: list[Observation] = []
        self._pieces: deque[tuple[int, Kept]] = deque()
        """The older ones: their bytes as they count, and PACKED_TOGETHER of them."""
        self._bytes = 0

    def __iter__(self) -> Iterator[Observation]:
        for _, piece in list(self._pieces):
            yield from pickle.loads(bytes(piece))  # noqa: S301 - this very process has made it
        yield from list(self._newest)

    def add(self, seen: Observation) -> None:
        self._newest.append(seen)
        self._bytes += seen.size
        if len(self._newest) == PACKED_TOGETHER:
            self._pieces.append(
                (sum(piece.size for piece in self._newest), packed(pickle.dumps(self._newest)))
            )
            self._newest.clear()
        while self._lines > MAX_LINES or self._bytes > MAX_HISTORY_BYTES:
            self._bytes -= self._pieces.popleft()[0]

    @property
    def _lines(self) -> int:
        return len(self._pieces) * PACKED_TOGETHER + len(self._newest)


class Observations:
    """The last requests and events. Without anybody who looks, one more costs an entry in a list."""

    def __init__(self) -> None:
        self._requests, self._events = _Last(), _Last()
        self._told: list[Told] = []

    def add(self, seen: Observation) -> None:
        (self._events if seen.is_event else self._requests).add(seen)
        for told in self._told:
            told(seen)

    def past(self, wanted: WantedLines) -> Iterator[Observation]:
        """What is remembered, the oldest first."""
        both = merge(self._requests, self._events, key=lambda seen: seen.at)
        return filter(wanted.has, both)

    def listen(self, told: Told) -> None:
        """Call `told` with each request and event from now on."""
        self._told.append(told)

    def forget(self, told: Told) -> None:
        self._told.remove(told)


class Follower:
    """The lines for one who looks, from now on. `Observations.listen` takes its `told`."""

    def __init__(self, wanted: WantedLines) -> None:
        self.dropped = 0
        """Lines that made way since `take` was last called."""
        self._wanted = wanted
        self._waiting: deque[Observation] = deque()
        self._has_more = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def told(self, seen: Observation) -> None:
        if not self._wanted.has(seen):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
            reached("lines for one who looks")
        self._waiting.append(seen)
        self._has_more.set()

    async def take(self) -> tuple[list[Observation], int]:
        """The lines that wait, at least one, and how many made way before them."""
        await self._has_more.wait()
        taken, dropped = list(self._waiting), self.dropped
        self._waiting.clear()
        self._has_more.clear()
        self.dropped = 0
        return taken, dropped
