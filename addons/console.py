"""Shows Kubernetes in mitmproxy's interfaces: bodies as YAML, and at each flow its route.

Without an interface nothing here runs: interfaces alone use content views, and the marks join the addons only beside
one. The hub keeps no body for a person: a streamed body is gone, unless mitmproxy's store_streamed_bodies is set.
"""

from __future__ import annotations

import re

from mitmproxy import contentviews, ctx, http
from mitmproxy.addonmanager import Loader
from mitmproxy.contentviews import Contentview, Metadata, SyntaxHighlight

from addons.requests.caller import Listener
from addons.requests.request_context import RequestContext, context_of
from addons.requests.route_decision import RouteKind
from addons.ui.readable import readable_body, readable_watch
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC

PRIORITY = 2.0
"""Above mitmproxy's own view of JSON, which says 1."""
NEVER = -1.0

STREAMED = "the body was streamed and not kept (see store_streamed_bodies)"

_TYPED = re.compile(rb'\s*\{[^{}\[]{0,200}"apiVersion"\s*:')
"""The beginning of an object or a list. Where another field comes first, mitmproxy's own JSON view shows the body."""
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:ADDED|MODIFIED|DELETED|BOOKMARK|ERROR)"')


class ObjectView(Contentview):
    """Objects, lists and Statuses."""

    @property
    def name(self) -> str:
        return "Kubernetes"

    @property
    def syntax_highlight(self) -> SyntaxHighlight:
        return "yaml"

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        return readable_body(Encoding.PROTOBUF if data.startswith(MAGIC) else Encoding.JSON, data)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        match metadata.content_type:
            case Encoding.PROTOBUF:
                return PRIORITY if data.startswith(MAGIC) else NEVER
            case Encoding.JSON:
                return PRIORITY if _TYPED.match(data) else NEVER
        return NEVER


class WatchView(Contentview):
    """Watches, one event after the other."""

    @property
    def name(self) -> str:
        return "Kubernetes watch"

    @property
    def syntax_highlight(self) -> SyntaxHighlight:
        return "yaml"

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        return readable_watch(Encoding.JSON if _EVENT.match(data) else Encoding.PROTOBUF, data)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        match metadata.content_type:
            case Encoding.PROTOBUF:
                return NEVER if data.startswith(MAGIC) or not data else PRIORITY
            case Encoding.JSON:
                return PRIORITY if _EVENT.match(data) else NEVER
        return NEVER


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
        self._views: tuple[Contentview, ...] = (ObjectView(), WatchView())
        self._marks = Marks()

    def load(self, loader: Loader) -> None:
        for view in self._views:
            contentviews.add(view)
        # Only the interfaces have mitmproxy's list of flows.
        if ctx.master.addons.get("view") is not None:
            ctx.master.addons.add(self._marks)

    def done(self) -> None:
        for view in self._views:
            # mitmproxy has no call to remove a content view.
            contentviews.registry._by_name.pop(view.name.lower(), None)
        if ctx.master.addons.get(self._marks.name) is not None:
            ctx.master.addons.remove(self._marks)
