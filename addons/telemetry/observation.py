"""Observations of one request, or of one event of a watch: the values, their line, the last of them, and their
listeners."""

from __future__ import annotations

import asyncio
import datetime
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from typing import Any, NamedTuple

from kube.bounds import reached
from kube.log_lines import printable
from kube.packed_text import StoredText, packed

ENDED = "ended: "
"""The prefix of the reason of a watch that the hub has ended."""
VERDICTS = ("relayed", "viewed", "filtered", "refused", "offline", "failed")
"""The outcome of a request: answered by the cloud; by a view; by either, and filters were bound to it; refused by the
hub; answered by the node because the cloud was away; or it got no answer."""
HANDSHAKE = "handshake"
"""The verb of a TLS handshake that failed. Its name is the server's that the client called."""
NAMED_REASONS = 3
"""Reasons of a filter that a line names."""

_RED, _AMBER, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"
_COLOURS = {"refused": _RED, "failed": _RED, "offline": _AMBER}


class Tally(NamedTuple):
    """The counts of one filter of a chain, and its reason for the first object that it changed or hid."""

    filter: str
    unchanged: int
    changed: int
    hidden: int
    reasons: tuple[str, ...]


class Observation(NamedTuple):
    """A request that begins to be answered for long or has been answered, or an event of a watch."""

    at: float
    """Seconds since the epoch."""
    component: str
    verb: str
    """RBAC's verb; of an event ADDED, MODIFIED, DELETED or HIDDEN; or HANDSHAKE."""
    resource: str
    """With its group, as RBAC names it; the path without the query where that names no resource."""
    subresource: str
    namespace: str
    name: str
    verdict: str
    """One of VERDICTS."""
    status: int
    """0 of an event, and where the client left before there was one."""
    sent: int
    """Bytes of the body."""
    seconds: float | None
    """Until the end of the answer; None of an event, and of a watch that begins."""
    source: str
    """Where the answer is from: `cloud`, `copy`, `leader`, or `hub` for its own."""
    route: str
    reason: str
    """Why the request took its route, or why it was refused."""
    version: int
    """The resourceVersion that the client has now; 0 where the hub has not looked."""
    filters: tuple[Tally, ...]
    is_event: bool = False
    watchers: int = 0
    """The number of watches that an event concerns."""

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        texts = len(self.resource) + len(self.namespace) + len(self.name) + len(self.reason)
        return 500 + texts + 200 * len(self.filters)

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "filters": [tally._asdict() for tally in self.filters]}


def from_json(values: Mapping[str, Any]) -> Observation:
    """The inverse of `to_json`; KeyError or TypeError where something else did."""
    filters = tuple(Tally(**{**tally, "reasons": tuple(tally["reasons"])}) for tally in values["filters"])
    return Observation(**{**values, "filters": filters})


def line(seen: Observation, *, wide: bool = False, has_colours: bool = False) -> str:
    """One line for a terminal or a log.

    `wide` adds the date, the route with its reason, the version, and the filters that left all as it was.
    """
    at = datetime.datetime.fromtimestamp(seen.at).astimezone()
    time = at.isoformat(timespec="milliseconds") if wide else f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
    object_ = "/".join(filter(None, (seen.namespace, seen.name)))
    what = " ".join(filter(None, (f"{seen.resource}{_below(seen.subresource)}", object_)))
    ended = f"{seen.verdict:<8} {seen.status or '-':>3}"
    if has_colours and (colour := _RED if seen.status >= 500 else _COLOURS.get(seen.verdict)):
        ended = f"{colour}{ended}{_PLAIN}"
    begun = [time, f"{seen.component or '(unnamed)':<14}", f"{seen.verb:<8}", f"{what:<44}"]
    parts = [f"{_bytes(seen.sent):>8}", f"{_lasted(seen):>7}", f"{seen.source:<5}"]
    if wide:
        parts += [f"{seen.route}: {seen.reason}" if seen.reason else seen.route]
        parts.append(f"v{seen.version}" if seen.version else "")
    elif seen.verdict in ("refused", "failed") or seen.reason.startswith(ENDED):
        parts.append(seen.reason)
    summary = (tally for tally in seen.filters if wide or tally.changed or tally.hidden)
    parts.append("; ".join(f"{tally.filter}: {_did(tally)}" for tally in summary))
    # The colours alone are no text.
    return "  ".join((_joined(begun), ended, _joined(parts))).rstrip()


def _below(subresource: str) -> str:
    return f"/{subresource}" if subresource else ""


def _did(tally: Tally) -> str:
    counts = {"kept": tally.unchanged, "changed": tally.changed, "hidden": tally.hidden}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "nothing"
    return f"{summary} ({_first(tally.reasons)})" if tally.reasons else summary


def _first(reasons: Iterable[str]) -> str:
    named = list(reasons)
    return ", ".join(named[:NAMED_REASONS]) + (", …" if len(named) > NAMED_REASONS else "")


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def _lasted(seen: Observation) -> str:
    if seen.seconds is None:
        return "-" if seen.is_event or seen.verb == HANDSHAKE else "open"
    return f"{seen.seconds * 1000:.0f} ms" if seen.seconds < 10 else f"{seen.seconds:.0f} s"


def _joined(parts: Iterable[str]) -> str:
    return printable("  ".join(filter(None, parts)))


MAX_LINES = 3_000
"""Requests that are remembered, and as many events."""
MAX_HISTORY_BYTES = 1024 * 1024
"""Bytes of the remembered requests, and as many of events."""
PACKED_TOGETHER = 50
"""Lines that are packed into one piece, in a quarter of a millisecond. Each line by itself is some twenty objects, made
between those of the requests of a burst: they kept a tenth of the hub's memory from going back after 250 watches."""
MAX_WAITING = 1_000
"""Lines that wait for a follower that reads too slowly. The oldest are dropped, and counted."""

type ObservationListener = Callable[[Observation], None]


class WantedLines(NamedTuple):
    """The lines that a follower wants; "" selects nothing."""

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
        self._pieces: deque[tuple[int, StoredText]] = deque()
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
    """The last requests and events. Without a follower, one more costs an entry in a list."""

    def __init__(self) -> None:
        self._requests, self._events = _Last(), _Last()
        self._listeners: list[ObservationListener] = []

    def add(self, seen: Observation) -> None:
        (self._events if seen.is_event else self._requests).add(seen)
        for summary in self._listeners:
            summary(seen)

    def past(self, wanted: WantedLines) -> Iterator[Observation]:
        """The recent observations, the oldest first."""
        both = merge(self._requests, self._events, key=lambda seen: seen.at)
        return filter(wanted.has, both)

    def listen(self, summary: ObservationListener) -> None:
        """Call `told` with each request and event from now on."""
        self._listeners.append(summary)

    def forget(self, summary: ObservationListener) -> None:
        self._listeners.remove(summary)


class Follower:
    """The lines for one follower, from now on. `Observations.listen` takes its `told`."""

    def __init__(self, wanted: WantedLines) -> None:
        self.dropped = 0
        """Lines dropped since `take` was last called."""
        self._wanted = wanted
        self._waiting: deque[Observation] = deque()
        self._has_more = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def summary(self, seen: Observation) -> None:
        if not self._wanted.has(seen):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
            reached("lines for one who looks")
        self._waiting.append(seen)
        self._has_more.set()

    async def next_lines(self) -> tuple[list[Observation], int]:
        """The waiting lines, at least one, and the number of those dropped before them."""
        await self._has_more.wait()
        taken, dropped = list(self._waiting), self.dropped
        self._waiting.clear()
        self._has_more.clear()
        self.dropped = 0
        return taken, dropped
