"""Annotations of a flow for people: a mark for its route, and a comment that begins with component and route."""

from __future__ import annotations

import orjson
from mitmproxy import http
from mitmproxy.flow import Flow

from addons.link.drills import Drill
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind

ROUTES = {
    RouteKind.RELAY: (":cloud:", "relay"),
    RouteKind.VIEW: (":recycle:", "view"),
    RouteKind.CACHED_RELAY: (":anchor:", "cached relay"),
    RouteKind.PEER: (":left_right_arrow:", "peer"),
    RouteKind.LOCAL: (":hearts:", "local"),
    RouteKind.KUBELET: (":diamonds:", "kubelet"),
}
"""Mark and name of each route. Marks are mitmproxy's names of signs that each font for text has, and no emoji font."""
OWN = ":gear:"
"""A request of the hub itself."""
REFUSED = ":heavy_multiplication_x:"

ARROW = " ▸ "
ALARM = "\N{BLACK CIRCLE}"
"""Comments have no colours of their own."""

DEFAULT_FILTER = f'!~marker {OWN} & !~u "/(livez|readyz|healthz)"'
"""mitmproxy's filter for the requests of components: it hides the hub's own requests, and all probes."""


def mark_of(context: RequestContext | None, *, refused: bool) -> str:
    """The mark of a flow, by its route. The hub's own requests keep one mark, even when they are refused."""
    if refused or context is None or context.route is None:
        return REFUSED
    mark, _ = ROUTES[context.route.kind]
    return mark


def comment_of(
    context: RequestContext | None, refusal: http.Response | None = None, drill: Drill | None = None
) -> str:
    """Return `kube-proxy ▸ view ▸ servicetopology`: component, route, and filters, else the reason for the route.

    `refusal` is the hub's own answer to a request without a server. A running `drill` comes first.
    """
    if drill is not None:
        return ARROW.join((f"{ALARM} DRILL {drill.kind}", comment_of(context, refusal)))
    component = (context.component if context is not None else "") or "(unnamed component)"
    if refusal is not None:
        return ARROW.join((component, "refused", why_refused(refusal)))
    if context is None or context.route is None:
        return component
    route = context.route
    _, name = ROUTES[route.kind]
    return ARROW.join((component, name, ", ".join(route.filtered_by) or route.reason))


def component_of(flow: Flow) -> str:
    """The component by a flow's comment."""
    first, *others = flow.comment.split(ARROW)
    return others[0] if first.startswith(ALARM) and others else first if others else ""


def why_refused(answer: http.Response) -> str:
    """The code and the message of a Status, which the hub wrote itself as JSON."""
    try:
        message = orjson.loads(answer.content or b"")["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.reason
    return f"{answer.status_code} {message}"


def remark(flow: http.HTTPFlow, text: str) -> None:
    """Add to a flow's comment, once."""
    if text not in flow.comment.split("; "):
        flow.comment = f"{flow.comment}; {text}" if flow.comment else text
