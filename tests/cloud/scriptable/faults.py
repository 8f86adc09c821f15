"""Faults on command, and the requests that they affect. A test calls `cloud.faults.add(TornFrame(after=2),
when=matching(resource="services"))`; the server looks up the matching rules. Backward resourceVersions and compaction
belong to the store: `cloud.store.restore`, `cloud.store.compact`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.cloud.scriptable.request_log import LoggedRequest, Predicate


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of one request."""


# -- any request ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """Respond with this Status instead. On a watch it is an HTTP error before the stream; `Refuse(410)` is HTTP 410."""

    code: int
    reason: str = ""
    """The Status' reason; "" for the code's usual one."""
    message: str = "refused on command"
    retry_after: int | None = None
    """Seconds, for the header and the Status; None for neither."""


@dataclass(frozen=True, slots=True)
class Delay(Fault):
    """Wait this many seconds, then respond as usual."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Silence(Fault):
    """Accept the request and never respond; when the rule is lifted, the connection is lost."""


@dataclass(frozen=True, slots=True)
class Disconnect(Fault):
    """Close the connection without a response."""


# -- requests with a complete response -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BodyFault(Fault):
    """A fault in the body of a response with 200."""


@dataclass(frozen=True, slots=True)
class TruncatedBody(BodyFault):
    """Promise the complete body in Content-Length, send half of it and close the connection."""


@dataclass(frozen=True, slots=True)
class MalformedBody(BodyFault):
    """Send half of the body as if it were complete: malformed in JSON and in protobuf."""


# -- watches -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchFault(Fault):
    """A fault in the stream of a watch, after 200 and this many frames."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class TornFrame(WatchFault):
    """Send this many frames and half of the next, then lose the connection."""


@dataclass(frozen=True, slots=True)
class MalformedFrame(WatchFault):
    """Send this many frames, then one that cannot be decoded; the stream continues."""


@dataclass(frozen=True, slots=True)
class StalledWatch(WatchFault):
    """Send this many frames, then nothing, while the connection stays open, until the rule is lifted."""


@dataclass(frozen=True, slots=True)
class ShortWatch(WatchFault):
    """Send this many frames, then end the stream cleanly; with 0 it is a very short watch."""


@dataclass(frozen=True, slots=True)
class LostWatch(WatchFault):
    """Send this many frames, then lose the connection between two frames."""


@dataclass(frozen=True, slots=True)
class ExpiredWatch(WatchFault):
    """Send one ERROR event, 410 Expired, then end; with `times=n`, repeatedly."""


def anything(_: LoggedRequest) -> bool:
    return True


def watches(request: LoggedRequest) -> bool:
    return request.verb == "watch"


@dataclass(eq=False, slots=True)
class Rule:
    """A fault and the requests that it affects."""

    fault: Fault
    when: Predicate
    left: int | None
    """The number of requests still to be affected; None for all, until lifted."""
    used: int = field(default=0, init=False)
    """The number of affected requests so far."""
    met: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when it has affected a request, for a test to wait on."""
    lifted: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def lift(self) -> None:
        """Affect no more requests, and release waiting ones."""
        self.left = 0
        self.lifted.set()

    def befalls(self, request: LoggedRequest) -> bool:
        if self.left == 0 or not self.when(request):
            return False
        if isinstance(self.fault, WatchFault):
            return watches(request)
        return not (isinstance(self.fault, BodyFault) and watches(request))


class Faults:
    """The active rules, in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, fault: Fault, *, times: int | None = 1, when: Predicate = anything) -> Rule:
        """Apply the fault to the next `times` requests that `when` selects (None: all of them)."""
        rule = Rule(fault, when, times)
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Remove all rules."""
        for rule in self._rules:
            rule.lift()
        self._rules.clear()

    def take(self, request: LoggedRequest) -> list[Rule]:
        """Return the rules that affect this request, and use up one request of each."""
        taken = [rule for rule in self._rules if rule.befalls(request)]
        for rule in taken:
            rule.used += 1
            rule.met.set()
            if rule.left is not None:
                rule.left -= 1
        return taken
