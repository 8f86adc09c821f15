"""Has a hub without an interface show its flows to one process that is attached, and makes nothing of them else.

What makes flows for people is loaded when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import compare_digest, token_hex
from typing import TYPE_CHECKING, Any

from mitmproxy import http
from mitmproxy.addonmanager import Loader
from mitmproxy.hooks import Hook, UpdateHook

from addons.link.drills import Drills
from addons.proxy.master import HubMaster
from addons.settings import Settings
from addons.ui.attached import NO_LEAVE
from addons.ui.masking import Visible, visible_by
from addons.ui.running_hub import RunningHub
from kube.errors import bad_request, conflict, forbidden

if TYPE_CHECKING:
    from addons.ui.attached.flow_feed import FlowFeed
    from addons.ui.attached.holds import Holds
    from addons.ui.flows.flows import Flows

MAX_COPIED = 4 * 1024 * 1024
"""Bytes of all bodies that are copied at once for an attached process."""
MAX_EVENTS = 2 * 1024 * 1024
"""Characters of all events that wait for it."""


class Attachments:
    """Knows the flows that run, and who is attached."""

    name = "edgehub-attachments"

    def __init__(self, settings: Callable[[], Settings], drills: Drills) -> None:
        self.key = ""
        """Known to the attached process alone, which alone decides about what it holds."""
        self._settings = settings
        self._drills = drills
        self._has_interface = False
        self._hub: RunningHub | None = None
        self._running: dict[str, http.HTTPFlow] = {}
        self._feed: FlowFeed | None = None
        self._flows: Flows | None = None
        self._holds: Holds | None = None

    def load(self, loader: Loader) -> None:
        self._has_interface = not isinstance(loader.master, HubMaster)

    def start(self, hub: RunningHub) -> None:
        """Take the running hub, which knows what filters did."""
        self._hub = hub

    def visible(self) -> Visible:
        """What people may see now besides the rest of an object."""
        return visible_by(self._settings())

    def may_hold(self) -> bool:
        """Whether the attached process may hold flows, and edit them."""
        return self._settings().allow_hold

    def attach(self) -> tuple[FlowFeed, Flows]:
        """Feed a process from now on, with what runs already first. Ends the feed of another one.

        StatusError 409 beside an interface.
        """
        self._refuse_beside_an_interface()
        from addons.ui.attached.flow_feed import FlowFeed  # noqa: PLC0415 - see the head of this module
        from addons.ui.attached.holds import Holds  # noqa: PLC0415 - see the head of this module
        from addons.ui.flows.bodies import Room  # noqa: PLC0415 - see the head of this module
        from addons.ui.flows.flows import Flows  # noqa: PLC0415 - see the head of this module

        if self._feed is not None:
            self.detach(self._feed)
        self.key = token_hex()
        holds = self._holds = Holds() if self.may_hold() else None
        feed = self._feed = FlowFeed(holds)
        flows = self._flows = Flows(
            self.visible,
            self._drills,
            lambda hook: _tell(feed, hook),
            holds.is_to_be_held if holds is not None else _never,
            Room(MAX_COPIED),
            Room(MAX_EVENTS),
        )
        if self._hub is not None:
            flows.start(self._hub)
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
        self._refuse_beside_an_interface()
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

    def error(self, flow: http.HTTPFlow) -> None:
        self.ended(flow)

    def ended(self, flow: http.HTTPFlow) -> None:
        """The answer is there, or will not come. A refused request has no other hook."""
        is_known = self._running.pop(flow.id, None) is not None
        if self._flows is not None and self._feed is not None:
            if not is_known:
                self._flows.requestheaders(flow)
            self._flows.ended(flow)

    def _refuse_beside_an_interface(self) -> None:
        if self._has_interface:
            raise conflict("this hub has an interface of mitmproxy itself: look there")


def _tell(feed: FlowFeed, hook: Hook) -> None:
    if isinstance(hook, UpdateHook) and not feed.is_closed:
        for flow in hook.flows:
            if isinstance(flow, http.HTTPFlow):
                feed.offer(flow)


def _never(_flow: http.HTTPFlow) -> bool:
    """Without leave nothing is held."""
    return False
