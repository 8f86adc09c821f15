"""Shows Kubernetes in mitmproxy's interfaces: bodies as YAML, and at each flow its route.

The hub's own master, which has no interface, runs nothing of it. The hub keeps no body for a person: a streamed body is
gone, unless mitmproxy's store_streamed_bodies is set.
"""

from __future__ import annotations

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from addons.proxy.master import HubMaster
from addons.requests.caller import Listener
from addons.requests.request_context import RequestContext, context_of
from addons.requests.route_decision import RouteKind

STREAMED = "the body was streamed and not kept (see store_streamed_bodies)"


class Marks:
    """Marks each flow by its route, and comments why it has no body."""

    name = "edgehub-marks"

    def __init__(self) -> None:
        self._kept = False

    def configure(self, updated: set[str]) -> None:
        self._kept = ctx.options.store_streamed_bodies

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        flow.marked = mark_of(context, refused=flow.response is not None)
        if context is not None and context.route is not None and context.route.filtered_by:
            _add(flow, "filters " + ", ".join(context.route.filtered_by))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is not None and flow.response.stream and not self._kept:
            _add(flow, STREAMED)


MARKS = {
    RouteKind.RELAY: ":cloud:",
    RouteKind.VIEW: ":house:",
    RouteKind.CACHED_RELAY: ":floppy_disk:",
    RouteKind.LOCAL: ":heartbeat:",
}
OWN = ":gear:"
"""A request of the hub itself."""
REFUSED = ":no_entry:"


def mark_of(context: RequestContext | None, *, refused: bool) -> str:
    """The mark of a flow, by its route."""
    if refused or context is None or context.route is None:
        return REFUSED
    return OWN if context.listener is Listener.INTERNAL else MARKS[context.route.kind]


def _add(flow: http.HTTPFlow, remark: str) -> None:
    flow.comment = f"{flow.comment}; {remark}" if flow.comment else remark


class Console:
    """Adds the content views and, beside an interface, the marks; removes them at the end."""

    name = "edgehub-console"

    def __init__(self) -> None:
        self._marks = Marks()

    def load(self, loader: Loader) -> None:
        if isinstance(loader.master, HubMaster):
            return
        from addons.ui import content_views  # noqa: PLC0415 - imports mitmproxy's views, which nobody else needs

        content_views.add()
        # Only the interfaces have mitmproxy's list of flows.
        if ctx.master.addons.get("view") is not None:
            ctx.master.addons.add(self._marks)

    def done(self) -> None:
        if isinstance(ctx.master, HubMaster):
            return
        from addons.ui import content_views  # noqa: PLC0415 - as in `load`

        content_views.remove()
        if ctx.master.addons.get(self._marks.name) is not None:
            ctx.master.addons.remove(self._marks)
