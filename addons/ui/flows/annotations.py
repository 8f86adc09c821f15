"""Annotations of flows: a mark for the route, and a comment that begins with component and route."""

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
"""Mark and name of each route. The marks are mitmproxy's names of signs that exist in text fonts, not only in emoji
fonts.
"""
OWN = ":gear:"
"""Mark of a request of the hub itself."""
REFUSED = ":heavy_multiplication_x:"

ARROW = " ▸ "
ALARM = "\N{BLACK CIRCLE}"
"""Sign of a drill, because comments have no colours."""

DEFAULT_FILTER = f'!~marker {OWN} & !~u "/(livez|readyz|healthz)"'
"""mitmproxy's filter expression for requests of components: it hides the hub's own requests, and all probes."""


def mark_of(context: RequestContext | None, *, refused: bool) -> str:
    """Return the mark of a flow, by its route."""
    if refused or context is None or context.route is None:
        return REFUSED
    mark, _ = ROUTES[context.route.kind]
    return mark


def comment_of(
    context: RequestContext | None, refusal: http.Response | None = None, drill: Drill | None = None
) -> str:
    """Return `kube-proxy ▸ view ▸ servicetopology`: component, route, and filters or else the reason for the route.

    `refusal` is the hub's own error answer. A running `drill` is put first.
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
    """Return the component named in a flow's comment."""
    first, *others = flow.comment.split(ARROW)
    return others[0] if first.startswith(ALARM) and others else first if others else ""


def why_refused(answer: http.Response) -> str:
    """Return code and message of a Status from the hub."""
    try:
        message = orjson.loads(answer.content or b"")["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.reason
    return f"{answer.status_code} {message}"


def remark(flow: http.HTTPFlow, text: str) -> None:
    """Append a text to a flow's comment, once."""
    if text not in flow.comment.split("; "):
        flow.comment = f"{flow.comment}; {text}" if flow.comment else text
