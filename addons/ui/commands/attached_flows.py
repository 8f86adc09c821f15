"""The flows of a hub in the attached process, built from the hub's records."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from mitmproxy import http
from mitmproxy.flow import Error
from mitmproxy.io import tnetstring
from mitmproxy.websocket import WebSocketData, WebSocketMessage

from addons.ui.flows.live_watches import MAX_EVENTS

TIMES = frozenset({"timestamp_start", "timestamp_end"})
"""Fields of a message that do not count as edits."""


class Update(NamedTuple):
    """A flow after a record was applied."""

    flow: http.HTTPFlow
    is_new: bool
    is_over: bool


class HeldMessage(NamedTuple):
    number: int
    state: dict[str, Any]
    """State of the intercepted message, as received from the hub."""


class AttachedFlows:
    """The running flows. A flow that has ended is removed."""

    def __init__(self) -> None:
        self._running: OrderedDict[str, http.HTTPFlow] = OrderedDict()
        self._held: dict[str, HeldMessage] = {}

    def apply_record(self, record: dict[str, Any]) -> Update:
        """Apply a record to its flow. KeyError, TypeError or ValueError if it is malformed."""
        state, hold = dict(record["flow"]), record["hold"]
        flow = self._running.get(state["id"])
        is_new = flow is None
        before = self._held.get(state["id"])
        if flow is not None and hold and before is not None and before.number == hold:
            return Update(flow, is_new=False, is_over=False)  # the user may be editing it
        if flow is None:
            made = http.HTTPFlow.from_state(state)
            assert isinstance(made, http.HTTPFlow)
            flow = self._running[made.id] = made
        else:
            messages, flow.websocket = flow.websocket, None
            flow.set_state(state)
            flow.websocket = messages
        self._held.pop(flow.id, None)
        flow.live = flow.intercepted = hold > 0  # mitmproxy kills only live flows
        if hold:
            self._held[flow.id] = HeldMessage(hold, _message(flow).get_state())
        if record["is_watch"]:
            flow.websocket = flow.websocket or WebSocketData()
            flow.websocket.messages += map(WebSocketMessage.from_state, record["messages"])
            del flow.websocket.messages[:-MAX_EVENTS]
        is_over = not record["live"]
        if is_over:
            del self._running[flow.id]
            _close(flow)
        return Update(flow, is_new, is_over)

    def decision(self, flow: http.HTTPFlow) -> dict[str, Any] | None:
        """Return the user's decision on a flow that was resumed or killed, to be sent to the hub, once; None for any
        other flow.
        """
        if flow.intercepted or (held := self._held.pop(flow.id, None)) is None:
            return None
        now = _message(flow).get_state()
        changes = {
            name: value for name, value in now.items() if name not in TIMES and value != held.state[name]
        }
        is_killed = flow.error is not None and flow.error.msg == Error.KILLED_MESSAGE
        return {"flow": flow.id, "hold": held.number, "changes": changes, "kill": is_killed}

    def rest(self) -> list[http.HTTPFlow]:
        """Close and return the flows that have not ended; no further records follow."""
        for flow in self._running.values():
            _close(flow)
        return list(self._running.values())


def _message(flow: http.HTTPFlow) -> http.Message:
    """Return the intercepted message: the answer if there is one."""
    return flow.response or flow.request


def _close(flow: http.HTTPFlow) -> None:
    """Mark a watch as closed: mitmproxy would show a missing close as an error."""
    if flow.websocket is not None:
        flow.websocket.closed_by_client, flow.websocket.close_code = False, 1000


def records(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the records that a hub sends, until the stream ends."""
    while True:
        try:
            record = tnetstring.load(stream)
        except (ValueError, IndexError):
            return  # the stream has ended, perhaps within a record
        if isinstance(record, dict):
            yield record
