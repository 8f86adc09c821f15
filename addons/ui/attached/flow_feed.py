"""The flows of a running hub for one process that is attached: what has changed of each, as it reads, within bounds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mitmproxy import http
from mitmproxy.io import tnetstring

from addons.ui.flows.kept_flows import size_of
from kube.bounds import reached

if TYPE_CHECKING:
    from addons.ui.attached.holds import Holds
    from addons.ui.flows.flows import Flows

MAX_FLOWS = 500
"""Changed flows that wait for an attached process which reads too slowly. The oldest make way, and are counted."""
MAX_FEED_BYTES = 4 * 1024 * 1024
"""Bytes of their bodies and messages."""
NOTHING = tnetstring.dumps(None)
"""A record that says nothing: to write it fails once the attached process is gone."""


class FlowFeed:
    """Each record is a tnetstring, as mitmproxy writes flows to files: `flow` and what is known of it, or `dropped`."""

    def __init__(self, holds: Holds | None = None) -> None:
        """`holds` has the flows that wait for the attached process; None where none does."""
        self.is_closed = False
        self._holds = holds
        self._changed: dict[str, tuple[http.HTTPFlow, int]] = {}
        self._bytes = 0
        self._dropped = 0
        self._has_more = asyncio.Event()

    def offer(self, flow: http.HTTPFlow) -> None:
        """Note that a flow is new, or has changed. It is read when the process takes it."""
        self._take(flow.id)
        size = size_of(flow)
        self._changed[flow.id] = (flow, size)
        self._bytes += size
        while len(self._changed) > MAX_FLOWS or (self._bytes > MAX_FEED_BYTES and len(self._changed) > 1):
            dropped = self._take(next(iter(self._changed)))
            if dropped is not None:
                dropped.resume()  # nobody sees that it is held
            self._dropped += 1
            reached("flows for an attached process")
        self._has_more.set()

    def close(self) -> None:
        """End `next`. Nothing more is noted."""
        self.is_closed = True
        self._changed.clear()
        self._has_more.set()

    async def wait(self) -> None:
        """Return when there is a record, or the feed is closed."""
        await self._has_more.wait()

    def next(self, flows: Flows) -> bytes:
        """The next record; none when the feed is closed."""
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
