"""Observations: a value for each request and watch event, its text line, the last ones, and listeners to new ones."""

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
"""Prefix of the reason if the hub itself ended a watch."""
VERDICTS = ("relayed", "viewed", "filtered", "refused", "offline", "failed")
"""Outcomes of a request: answered by the cloud; by a view; by either, with filters bound to it; refused by the hub;
answered by the node because the cloud was away; not answered.
"""
HANDSHAKE = "handshake"
"""Value of `verb` for a failed TLS handshake; its `name` is the server name that the client called."""
NAMED_REASONS = 3
"""Maximum reasons of a filter in a line."""

_RED, _AMBER, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"
_COLOURS = {"refused": _RED, "failed": _RED, "offline": _AMBER}


class Tally(NamedTuple):
    """The counts of one filter in a chain, and its reasons for changing or hiding objects."""

    filter: str
    unchanged: int
    changed: int
    hidden: int
    reasons: tuple[str, ...]


class Observation(NamedTuple):
    """A completed request, a watch that begins, or an event of a watch."""

    at: float
    """Unix time in seconds."""
    component: str
    verb: str
    """RBAC's verb; for an event ADDED, MODIFIED, DELETED or HIDDEN; or HANDSHAKE."""
    resource: str
    """The resource with its group, as in RBAC; for other paths the path without its query."""
    subresource: str
    namespace: str
    name: str
    verdict: str
    """The outcome, one of VERDICTS."""
    status: int
    """Status code; 0 for an event, and if the client left before the answer."""
    sent: int
    """Body bytes sent."""
    seconds: float | None
    """Seconds until the end of the answer; None for an event, and for a watch that begins."""
    source: str
    """Origin of the answer: `cloud`, `copy`, `leader`, or `hub`."""
    route: str
    reason: str
    """Why the request has this route, or why it was refused."""
    version: int
    """The resourceVersion that the client has now; 0 if the hub does not know it."""
    filters: tuple[Tally, ...]
    is_event: bool = False
    watchers: int = 0
    """Number of watches that received the event."""

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        texts = len(self.resource) + len(self.namespace) + len(self.name) + len(self.reason)
        return 500 + texts + 200 * len(self.filters)

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "filters": [tally._asdict() for tally in self.filters]}


def from_json(values: Mapping[str, Any]) -> Observation:
    """Parse the output of `to_json`. KeyError or TypeError for anything else."""
    filters = tuple(Tally(**{**tally, "reasons": tuple(tally["reasons"])}) for tally in values["filters"])
    return Observation(**{**values, "filters": filters})


def line(seen: Observation, *, wide: bool = False, has_colours: bool = False) -> str:
    """Format an observation as one line for a terminal or log.

    `wide` adds the date, the route with its reason, the version, and filters that changed nothing.
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
    # `ended` is joined without `printable`, which would remove its colour codes.
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
"""Maximum stored requests, and maximum stored events."""
MAX_HISTORY_BYTES = 1024 * 1024
"""Maximum bytes of stored requests, and of stored events."""
PACK_BATCH = 50
"""Observations compressed into one piece, which takes 0.25 ms. Separately each has some twenty objects, allocated among
those of a burst of requests: after 250 watches they prevented a tenth of the hub's memory from being freed.
"""
MAX_WAITING = 1_000
"""Maximum lines queued for a follower that reads too slowly. The oldest are dropped, and counted."""

type ObservationListener = Callable[[Observation], None]


class WantedLines(NamedTuple):
    """The observations that a follower selects; "" matches all."""

    component: str = ""
    resource: str = ""
    """The plural, with or without its group."""
    namespace: str = ""
    verdict: str = ""
    events: bool = False
    since: float = 0.0
    """Unix time in seconds."""

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
    """The last observations of one kind; all but the newest are compressed."""

    def __init__(self) -> None:
        self._newest: list[Observation] = []
        self._newest_bytes = 0
        self._pieces: deque[tuple[int, StoredText]] = deque()
        """The compressed older observations, PACK_BATCH in each piece, with their counted bytes."""
        self._bytes = 0

    def __iter__(self) -> Iterator[Observation]:
        for _, piece in list(self._pieces):
            yield from pickle.loads(bytes(piece))  # noqa: S301 - this very process has made it
        yield from list(self._newest)

    def add(self, seen: Observation) -> None:
        size = seen.size
        self._newest.append(seen)
        self._newest_bytes += size
        self._bytes += size
        if len(self._newest) == PACK_BATCH:
            self._pieces.append((self._newest_bytes, packed(pickle.dumps(self._newest))))
            self._newest.clear()
            self._newest_bytes = 0
        while self._lines > MAX_LINES or self._bytes > MAX_HISTORY_BYTES:
            self._bytes -= self._pieces.popleft()[0]

    @property
    def _lines(self) -> int:
        return len(self._pieces) * PACK_BATCH + len(self._newest)


class Observations:
    """The last requests and events. Recording is cheap: it appends to a list."""

    def __init__(self) -> None:
        self._requests, self._events = _Last(), _Last()
        self._listeners: list[ObservationListener] = []

    def add(self, seen: Observation) -> None:
        (self._events if seen.is_event else self._requests).add(seen)
        for summary in self._listeners:
            summary(seen)

    def past(self, wanted: WantedLines) -> Iterator[Observation]:
        """Yield the selected stored observations, oldest first."""
        both = merge(self._requests, self._events, key=lambda seen: seen.at)
        return filter(wanted.has, both)

    def listen(self, summary: ObservationListener) -> None:
        """Call `summary` with each new request and event."""
        self._listeners.append(summary)

    def forget(self, summary: ObservationListener) -> None:
        self._listeners.remove(summary)


class Follower:
    """Queues new observations for one follower. `Observations.listen` gets its `summary`."""

    def __init__(self, wanted: WantedLines) -> None:
        self.dropped = 0
        """Lines dropped since the last call of `next_lines`."""
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
        """Wait for lines. Return the queued ones, and the number of lines dropped before them."""
        await self._has_more.wait()
        taken, dropped = list(self._waiting), self.dropped
        self._waiting.clear()
        self._has_more.clear()
        self.dropped = 0
        return taken, dropped
