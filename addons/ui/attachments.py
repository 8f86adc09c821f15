"""Has a hub without an interface show its flows to one process that is attached, and makes nothing of them else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mitmproxy import http
from mitmproxy.hooks import Hook, UpdateHook

from addons.link.drills import Drills

if TYPE_CHECKING:
    from addons.ui.flow_feed import FlowFeed
    from addons.ui.flows.filtered import FilteringParts
    from addons.ui.flows.flows import Flows
    from addons.ui.masking import Visible

MAX_COPIED = 4 * 1024 * 1024
"""Bytes of all bodies that are copied at once for an attached process."""
MAX_EVENTS = 2 * 1024 * 1024
"""Characters of all events that wait for it."""


class Attachments:
    """Knows the flows that run, and who is attached."""

    def __init__(self, visible: Callable[[], Visible], drills: Drills) -> None:
        self.visible = visible
        """What people may see now besides the rest of an object."""
        self._drills = drills
        self._parts: FilteringParts | None = None
        self._running: dict[str, http.HTTPFlow] = {}
        self._feed: FlowFeed | None = None
        self._flows: Flows | None = None

    def start(self, parts: FilteringParts) -> None:
        """Take the parts of the hub that know what filters did."""
        self._parts = parts

    def attach(self) -> tuple[FlowFeed, Flows]:
        """Feed a process from now on, with what runs already first. Ends the feed of another one."""
        # What makes flows for people is loaded when somebody looks.
        from addons.ui.flow_feed import FlowFeed  # noqa: PLC0415 - as said above
        from addons.ui.flows.bodies import UnderWay  # noqa: PLC0415 - as said above
        from addons.ui.flows.flows import Flows  # noqa: PLC0415 - as said above
        from addons.ui.flows.live_watches import Total  # noqa: PLC0415 - as said above

        if self._feed is not None:
            self.detach(self._feed)
        feed = self._feed = FlowFeed()
        flows = self._flows = Flows(
            self.visible,
            self._drills,
            lambda hook: _tell(feed, hook),
            under_way=UnderWay(MAX_COPIED),
            total=Total(MAX_EVENTS),
        )
        if self._parts is not None:
            flows.start(self._parts)
        for flow in self._running.values():
            flows.join(flow)
            feed.offer(flow)
        return feed, flows

    def detach(self, feed: FlowFeed) -> None:
        """End a feed. Where it was the last, flows go on as before anybody looked."""
        feed.close()
        if feed is self._feed and self._flows is not None:
            self._flows.leave(self._running.values())
            self._feed = self._flows = None

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self._running[flow.id] = flow
        if self._flows is not None and self._feed is not None:
            self._flows.requestheaders(flow)
            self._feed.offer(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if self._flows is not None and self._feed is not None:
            self._flows.responseheaders(flow)
            self._feed.offer(flow)

    def ended(self, flow: http.HTTPFlow) -> None:
        """The answer is there, or will not come. A refused request has no other hook."""
        is_known = self._running.pop(flow.id, None) is not None
        if self._flows is not None and self._feed is not None:
            if not is_known:
                self._flows.requestheaders(flow)
            self._flows.ended(flow)


def _tell(feed: FlowFeed, hook: Hook) -> None:
    if isinstance(hook, UpdateHook) and not feed.is_closed:
        for flow in hook.flows:
            if isinstance(flow, http.HTTPFlow):
                feed.offer(flow)
