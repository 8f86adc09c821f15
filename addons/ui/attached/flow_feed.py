"""A running hub's flows for the attached process: bounded queues of changes, and intercepted flows with their time
limit and edits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from mitmproxy import flowfilter, http
from mitmproxy.io import tnetstring

from addons.requests.caller import masked
from addons.requests.request_context import context_of
from addons.server.messages import refuse
from addons.ui.flows.annotations import remark
from addons.ui.flows.interface import size_of
from kube.bounds import reached
from kube.errors import StatusError, bad_request, conflict

if TYPE_CHECKING:
    from addons.ui.flows.flows import Flows

MAX_HELD = 20
"""Maximum flows intercepted at a time. Others continue."""
HOLD_TIME = 120.0
"""Seconds after which an intercepted flow continues unchanged."""
FIELDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("method", "scheme", "authority", "path", "http_version", "reason"), bytes),
    **dict.fromkeys(("port", "status_code"), int),
    "host": str,
    "content": (bytes, type(None)),
}
"""Fields of mitmproxy's messages, besides headers, that an edit may contain. The hub decides which edits are
accepted.
"""

logger = logging.getLogger(__name__)


class _Hold(NamedTuple):
    number: int
    """Distinguishes successive interceptions of one flow: its request, then its answer."""
    flow: http.HTTPFlow
    message: http.Message
    end: asyncio.TimerHandle


class Holds:
    """The intercepted flows. Each waits for a decision, the time limit, or the end of the attachment."""

    def __init__(self) -> None:
        self._expression = ""
        self._filter: Callable[[http.HTTPFlow], object] | None = None
        self._held: dict[str, _Hold] = {}
        self._numbers = count(1)

    def handle_command(self, said: Mapping[str, Any]) -> None:
        """Execute a command of the attached process.

        `filter` selects the flows to intercept. `flow` and `hold` name an intercepted flow, which continues with
        `changes` of its message, or is killed by `kill`. StatusError 400 for a malformed command.
        """
        match said:
            case {"filter": str(expression)}:
                self.choose(expression)
            case {"flow": str(flow), "hold": int(number), "changes": dict(changes), "kill": bool(is_killed)}:
                self.decide(flow, number, changes, is_killed=is_killed)
            case _:
                raise bad_request("neither a filter nor a decision")

    def choose(self, expression: str) -> None:
        """Set mitmproxy's filter expression for flows to intercept; "" for none. StatusError 400 if it is invalid."""
        try:
            self._filter = flowfilter.parse(expression) if expression else None
        except ValueError as error:
            raise bad_request(f"no filter expression of mitmproxy's: {error}") from None
        if expression == self._expression:
            return  # mitmproxy reports one change as a change of two options
        self._expression = expression
        logger.warning(
            "attached: %s", f"requests of {expression} are held" if expression else "nothing is held"
        )

    def is_to_be_held(self, flow: http.HTTPFlow) -> bool:
        """Whether the user's filter matches. Flows that the hub answers itself, such as the node's Lease, are never
        intercepted.
        """
        context = context_of(flow)
        if self._filter is None or context is None or context.route is None or context.answerer is not None:
            return False
        return bool(self._filter(flow))

    def begin(self, flow: http.HTTPFlow, message: http.Message) -> bool:
        """Intercept a flow at a complete message. Return whether it was intercepted."""
        if message.stream or not self.is_to_be_held(flow):
            return False
        if len(self._held) >= MAX_HELD:
            reached("held flows")
            remark(flow, f"not held: {MAX_HELD} others are")
            return False
        flow.intercept()
        end = asyncio.get_running_loop().call_later(HOLD_TIME, self._expire, flow)
        self._held[flow.id] = _Hold(next(self._numbers), flow, message, end)
        return True

    def end(self, flow: http.HTTPFlow) -> None:
        """Handle the end of a flow's interception."""
        self._held.pop(flow.id).end.cancel()

    def number(self, flow: http.HTTPFlow) -> int:
        """Return the number of a flow's current interception; 0 for none."""
        hold = self._held.get(flow.id)
        return hold.number if hold is not None and flow.intercepted else 0

    def release(self) -> None:
        """Resume all flows unchanged, and intercept no more."""
        self._filter = None
        for hold in self._held.values():
            hold.flow.resume()

    def decide(self, flow_id: str, number: int, changes: Mapping[str, Any], *, is_killed: bool) -> None:
        """Resume an intercepted flow with a user's changes, or kill it.

        StatusError 409 if it is no longer intercepted, 400 for an invalid change: then a request is refused, and an
        answer continues unchanged.
        """
        hold = self._held.get(flow_id)
        if hold is None or hold.number != number or not hold.flow.intercepted:
            raise conflict("the hub no longer holds this flow")
        flow = hold.flow
        if is_killed or changes:
            what, request = "ended" if is_killed else "edited", flow.request
            path = masked(request.data.path).decode(errors="replace")
            logger.warning("attached: a person has %s %s %s", what, request.method, path)
            remark(flow, f"{what} by hand")
        try:
            for name, value in _values(changes, hold.message).items():
                setattr(hold.message.data, name, value)
        except StatusError as error:
            remark(flow, error.message)
            if hold.message is flow.request:
                refuse(flow, error)
            raise
        finally:
            flow.resume()
        if is_killed and flow.killable:
            flow.kill()

    def _expire(self, flow: http.HTTPFlow) -> None:
        reached("time of a held flow")
        remark(flow, f"held no longer than {HOLD_TIME:.0f} s")
        flow.resume()


def _values(changes: Mapping[str, Any], message: http.Message) -> dict[str, Any]:
    """Convert the changed fields to mitmproxy's types. StatusError 400 for an invalid field."""
    values = dict(changes)
    for name, value in values.items():
        if name == "headers":
            values[name] = _headers(value, type(message.headers))
        elif not hasattr(message.data, name) or not isinstance(value, FIELDS.get(name, ())):
            raise bad_request(f"edit rejected: {name}")
    return values


def _headers(value: object, kind: type[http.Headers]) -> http.Headers:
    pairs = (
        [tuple(field) for field in value if isinstance(field, list | tuple)]
        if isinstance(value, list | tuple)
        else []
    )
    if not pairs or any(
        len(pair) != 2 or not all(isinstance(part, bytes) for part in pair) for pair in pairs
    ):
        raise bad_request("edit rejected: headers are pairs of a name and a value")
    return kind(pairs)


MAX_FLOWS = 500
"""Maximum changed flows queued for an attached process that reads too slowly. The oldest are dropped, and counted."""
MAX_FEED_BYTES = 4 * 1024 * 1024
"""Maximum bytes of the queued flows' bodies and messages."""
EMPTY_RECORD = tnetstring.dumps(None)
"""An empty record. Writing it fails once the attached process is gone."""


class FlowFeed:
    """Queue of records for the attached process. A record is a tnetstring, as in mitmproxy's flow files: `flow` with
    its state, or `dropped`.
    """

    def __init__(self, holds: Holds | None = None) -> None:
        """`holds` has the intercepted flows; None without permission to intercept."""
        self.is_closed = False
        self._holds = holds
        self._changed: dict[str, tuple[http.HTTPFlow, int]] = {}
        self._bytes = 0
        self._dropped = 0
        self._has_more = asyncio.Event()

    def offer(self, flow: http.HTTPFlow) -> None:
        """Queue a new or changed flow. Its state is read when the process takes the record."""
        self._take(flow.id)
        size = size_of(flow)
        self._changed[flow.id] = (flow, size)
        self._bytes += size
        while len(self._changed) > MAX_FLOWS or (self._bytes > MAX_FEED_BYTES and len(self._changed) > 1):
            dropped = self._take(next(iter(self._changed)))
            if dropped is not None:
                dropped.resume()  # its user cannot see that it is intercepted
            self._dropped += 1
            reached("flows for an attached process")
        self._has_more.set()

    def close(self) -> None:
        """Close the queue. Later offers are ignored."""
        self.is_closed = True
        self._changed.clear()
        self._has_more.set()

    async def wait(self) -> None:
        """Return when a record is queued, or the feed is closed."""
        await self._has_more.wait()

    def next(self, flows: Flows) -> bytes:
        """Return the next record; empty when the feed is closed."""
        said = b""
        if self._dropped:
            said, self._dropped = tnetstring.dumps({"dropped": self._dropped}), 0
        if self._changed and (flow := self._take(next(iter(self._changed)))) is not None:
            said += tnetstring.dumps(
                _state(flow, flows, self._holds.number(flow) if self._holds is not None else 0)
            )
        if not self._changed and not self.is_closed:
            self._has_more.clear()
        return said

    def _take(self, flow_id: str) -> http.HTTPFlow | None:
        flow, size = self._changed.pop(flow_id, (None, 0))
        self._bytes -= size
        return flow


def _state(flow: http.HTTPFlow, flows: Flows, hold: int) -> dict[str, Any]:
    messages = flows.take_messages(flow)
    state: dict[str, Any] = flow.get_state()
    state["websocket"] = None
    is_settled, is_watch = flows.is_settled(flow), flow.websocket is not None
    may_be_shown = is_settled or hold > 0
    if not may_be_shown:
        state["request"]["content"] = None
    if not may_be_shown and not is_watch and state["response"] is not None:
        state["response"]["content"] = None
    return {
        "flow": state,
        "messages": [message.get_state() for message in messages],
        "is_watch": is_watch,
        "live": not is_settled,
        "hold": hold,
    }
