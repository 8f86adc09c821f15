"""Sends the flows of a hub without an interface to one attached process.

The code that prepares flows for display is imported when a process attaches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from secrets import compare_digest, token_hex
from typing import TYPE_CHECKING, NamedTuple

from mitmproxy import http
from mitmproxy.addonmanager import Loader
from mitmproxy.hooks import Hook, UpdateHook

from addons.link.drills import Drills
from addons.proxy.master import HubMaster
from addons.settings import Settings
from addons.ui.attached import HOLD_NOT_ALLOWED
from addons.ui.masking import Visible, visible_by
from addons.ui.running_hub import RunningHub
from kube.errors import conflict, forbidden

if TYPE_CHECKING:
    from addons.ui.attached.flow_feed import FlowFeed, Holds
    from addons.ui.flows.flows import Flows

MAX_COPIED = 4 * 1024 * 1024
"""Maximum bytes of all bodies copied at a time for an attached process."""
MAX_EVENTS = 2 * 1024 * 1024
"""Maximum characters of all watch events queued for an attached process."""


class Attached(NamedTuple):
    """The attached process."""

    feed: FlowFeed
    flows: Flows
    holds: Holds | None
    """Its intercepted flows; None without permission to intercept."""


class Attachments:
    """The running flows, and the process that is attached, if any."""

    name = "edgehub-attachments"

    def __init__(self, settings: Callable[[], Settings], drills: Drills) -> None:
        self.key = ""
        """Secret of the attached process, by which it authenticates its decisions on intercepted flows."""
        self._settings = settings
        self._drills = drills
        self._has_interface = False
        self._hub: RunningHub | None = None
        self._running: dict[str, http.HTTPFlow] = {}
        self._attached: Attached | None = None

    def load(self, loader: Loader) -> None:
        self._has_interface = not isinstance(loader.master, HubMaster)

    def start(self, hub: RunningHub) -> None:
        """Set the running hub, which provides the filters' verdicts."""
        self._hub = hub

    def visible(self) -> Visible:
        """Return which optional parts of objects may be shown."""
        return visible_by(self._settings())

    def may_hold(self) -> bool:
        """Whether the attached process may intercept and edit flows."""
        return self._settings().allow_hold

    def attach(self) -> tuple[FlowFeed, Flows]:
        """Start a feed for a process, beginning with the running flows. Ends the feed of a previously attached process.

        StatusError 409 if this hub has an interface.
        """
        self._refuse_beside_an_interface()
        from addons.ui.attached.flow_feed import FlowFeed, Holds  # noqa: PLC0415 - see the head of this module
        from addons.ui.flows.bodies import ByteBudget  # noqa: PLC0415 - see the head of this module
        from addons.ui.flows.flows import Flows  # noqa: PLC0415 - see the head of this module

        if self._attached is not None:
            self.detach(self._attached.feed)
        self.key = token_hex()
        holds = Holds() if self.may_hold() else None
        feed = FlowFeed(holds)
        flows = Flows(
            self.visible,
            self._drills,
            lambda hook: _record(feed, hook),
            holds.is_to_be_held if holds is not None else lambda _flow: False,
            ByteBudget(MAX_COPIED),
            ByteBudget(MAX_EVENTS),
        )
        self._attached = Attached(feed, flows, holds)
        if self._hub is not None:
            flows.start(self._hub)
        for flow in self._running.values():
            flows.join(flow)
            feed.offer(flow)
        return feed, flows

    def detach(self, feed: FlowFeed) -> None:
        """End a feed. Without a feed, flows continue without copies."""
        feed.close()
        attached = self._attached
        if attached is not None and attached.feed is feed:
            attached.flows.leave(self._running.values())
            if attached.holds is not None:
                attached.holds.release()
            self._attached = None

    def holds_of(self, key: str) -> Holds:
        """Return the intercepted flows of the attached process.

        StatusError 403 if intercepting is not permitted, 409 if `key` is not the attached process's.
        """
        self._refuse_beside_an_interface()
        if not self.may_hold():
            raise forbidden(HOLD_NOT_ALLOWED)
        holds = self._attached.holds if self._attached is not None else None
        if holds is None or not compare_digest(key.encode(), self.key.encode()):
            raise conflict("another process is attached now")
        return holds

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self._running[flow.id] = flow
        if (attached := self._attached) is not None:
            attached.flows.requestheaders(flow)
            attached.feed.offer(flow)

    async def request(self, flow: http.HTTPFlow) -> None:
        """Wait while the request is intercepted."""
        if (attached := self._attached) is not None:
            await _wait(attached, flow, flow.request, attached.flows.request)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if (attached := self._attached) is not None:
            attached.flows.responseheaders(flow)
            attached.feed.offer(flow)

    async def response(self, flow: http.HTTPFlow) -> None:
        """Wait while the answer is intercepted."""
        if (attached := self._attached) is not None and flow.response is not None:
            await _wait(attached, flow, flow.response, attached.flows.hold_answer)
        self.ended(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        self.ended(flow)

    def ended(self, flow: http.HTTPFlow) -> None:
        """Handle the end of a flow, with or without an answer. For a refused request it is the only hook."""
        is_known = self._running.pop(flow.id, None) is not None
        if (attached := self._attached) is not None:
            if not is_known:
                attached.flows.requestheaders(flow)
            attached.flows.ended(flow)

    def _refuse_beside_an_interface(self) -> None:
        if self._has_interface:
            raise conflict("this hub has an interface of mitmproxy itself: look there")


async def _wait(
    attached: Attached,
    flow: http.HTTPFlow,
    message: http.Message,
    decided: Callable[[http.HTTPFlow], Awaitable[None]],
) -> None:
    """Intercept a flow at this message if the user's filter matches, and wait until `decided` returns."""
    holds = attached.holds
    if holds is not None and holds.begin(flow, message):
        try:
            await decided(flow)
        finally:
            holds.end(flow)


def _record(feed: FlowFeed, hook: Hook) -> None:
    if isinstance(hook, UpdateHook) and not feed.is_closed:
        for flow in hook.flows:
            if isinstance(flow, http.HTTPFlow):
                feed.offer(flow)
