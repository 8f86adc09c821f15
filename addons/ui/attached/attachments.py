"""Has a hub without an interface show its flows to one process that is attached, and makes nothing of them else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import compare_digest, token_hex
from typing import TYPE_CHECKING, Any

from mitmproxy import http
from mitmproxy.hooks import Hook, UpdateHook

from addons.link.drills import Drills
from kube.errors import bad_request, conflict, forbidden

if TYPE_CHECKING:
    from addons.ui.attached.flow_feed import FlowFeed
    from addons.ui.attached.holds import Holds
    from addons.ui.flows.filtered import FilteringParts
    from addons.ui.flows.flows import Flows
    from addons.ui.masking import Visible

MAX_COPIED = 4 * 1024 * 1024
"""Bytes of all bodies that are copied at once for an attached process."""
MAX_EVENTS = 2 * 1024 * 1024
"""Characters of all events that wait for it."""
NO_LEAVE = "this hub lets nobody hold a flow: start it with --allow-hold"


class Attachments:
    """Knows the flows that run, and who is attached."""

    def __init__(
        self, visible: Callable[[], Visible], drills: Drills, may_hold: Callable[[], bool] = bool
    ) -> None:
        self.visible = visible
        """What people may see now besides the rest of an object."""
        self.may_hold = may_hold
        """Whether the attached process may hold flows, and edit them."""
        self.key = ""
        """Known to the attached process alone, which alone decides about what it holds."""
        self._drills = drills
        self._parts: FilteringParts | None = None
        self._running: dict[str, http.HTTPFlow] = {}
        self._feed: FlowFeed | None = None
        self._flows: Flows | None = None
        self._holds: Holds | None = None

    def start(self, parts: FilteringParts) -> None:
        """Take the parts of the hub that know what filters did."""
        self._parts = parts

    def attach(self) -> tuple[FlowFeed, Flows]:
        """Feed a process from now on, with what runs already first. Ends the feed of another one."""
        # What makes flows for people is loaded when somebody looks.
        from addons.ui.attached.flow_feed import FlowFeed  # noqa: PLC0415 - as said above
        from addons.ui.attached.holds import Holds  # noqa: PLC0415 - as said above
        from addons.ui.flows.bodies import UnderWay  # noqa: PLC0415 - as said above
        from addons.ui.flows.flows import Flows  # noqa: PLC0415 - as said above
        from addons.ui.flows.live_watches import Total  # noqa: PLC0415 - as said above

        if self._feed is not None:
            self.detach(self._feed)
        self.key = token_hex()
        holds = self._holds = Holds() if self.may_hold() else None
        feed = self._feed = FlowFeed(holds)
        flows = self._flows = Flows(
            self.visible,
            self._drills,
            lambda hook: _tell(feed, hook),
            is_to_be_held=holds.is_to_be_held if holds is not None else _never,
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
            if self._holds is not None:
                self._holds.release()
            self._feed = self._flows = self._holds = None

    def refuse_others(self, key: str) -> None:
        """StatusError 403 where nobody may hold flows, 409 for another process than the one that is attached."""
        if not self.may_hold():
            raise forbidden(NO_LEAVE)
        if self._holds is None or not compare_digest(key.encode(), self.key.encode()):
            raise conflict("another process is attached now")

    def told(self, said: Mapping[str, Any]) -> None:
        """Do what the attached process says of flows that are held.

        `filter` says which are, from now on; else `flow` and `hold` name one, which goes on with `changes` of its
        message, or ends where it is to `kill`. StatusError 400 for what cannot be read.
        """
        assert self._holds is not None
        match said:
            case {"filter": str(expression)}:
                self._holds.choose(expression)
            case {"flow": str(flow), "hold": int(number), "changes": dict(changes), "kill": bool(is_killed)}:
                self._holds.decide(flow, number, changes, is_killed=is_killed)
            case _:
                raise bad_request("neither a filter nor a decision")

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self._running[flow.id] = flow
        if self._flows is not None and self._feed is not None:
            self._flows.requestheaders(flow)
            self._feed.offer(flow)

    async def request(self, flow: http.HTTPFlow) -> None:
        """Wait with a request that is held."""
        flows, holds = self._flows, self._holds
        if flows is not None and holds is not None and holds.begin(flow, flow.request):
            try:
                await flows.request(flow)
            finally:
                holds.end(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if self._flows is not None and self._feed is not None:
            self._flows.responseheaders(flow)
            self._feed.offer(flow)

    async def response(self, flow: http.HTTPFlow) -> None:
        """Wait with an answer that is held."""
        flows, holds, answer = self._flows, self._holds, flow.response
        if flows is not None and holds is not None and answer is not None and holds.begin(flow, answer):
            try:
                await flows.hold_answer(flow)
            finally:
                holds.end(flow)
        self.ended(flow)

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


def _never(_flow: http.HTTPFlow) -> bool:
    """Without leave nothing is held."""
    return False
