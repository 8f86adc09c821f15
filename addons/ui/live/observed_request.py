"""Makes the observation of a request: its read, its route, and its result. The log and the terminal can print it."""

from __future__ import annotations

import logging
import sys
from functools import partial

from mitmproxy import ctx, http

from addons.requests.caller import masked
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind
from addons.server.limits.request_head import MAX_METHOD
from addons.settings import Settings
from addons.telemetry.log import without_credentials
from addons.telemetry.observation import ENDED, Observation, Observations, line
from kube.errors import parse_status

CLIENT_CLOSED_REQUEST = 499
"""Status recorded if the client left before an answer."""
BROKEN = 502
"""Status recorded if the answer could not be made, or was aborted."""

VIEWED = (RouteKind.VIEW, RouteKind.PEER, RouteKind.LOCAL)
HUB_ITSELF = "hub"
"""Value of `source` for the hub's own answers."""
logger = logging.getLogger(__name__)


def observed(
    flow: http.HTTPFlow, context: RequestContext | None, now: float, sent: int, *, has_ended: bool = True
) -> Observation:
    """Return the observation of a flow. `context` is None if the request could not be parsed; `sent` counts the
    answer's body bytes so far.
    """
    status, is_broken = _status(flow)
    is_relayed = context is not None and context.upstream is not None
    began = flow.request.timestamp_start or flow.timestamp_created
    seconds = max(0.0, now - began) if has_ended else None
    if context is None:
        path = masked(flow.request.data.path).decode(errors="replace").partition("?")[0]
        verdict = "refused" if flow.response is not None else "failed"
        verb = flow.request.method[:MAX_METHOD].lower()
        return Observation(
            *(now, "", verb, path, "", "", "", verdict, status, sent, seconds),
            *(HUB_ITSELF, "", _why(flow), 0, ()),
        )
    info, served, route = context.info, context.served, context.route
    resource = info.type.group_resource if info.type is not None else info.path
    source = served.source or ("cloud" if is_relayed else HUB_ITSELF)
    verdict = _verdict(context, status, source, is_broken=is_broken, is_relayed=is_relayed)
    has_failed = verdict in ("refused", "failed")
    return Observation(
        *(now, context.component, info.verb, resource, info.subresource, info.namespace, info.name),
        *(verdict, status, sent, seconds, source, route.kind if route is not None else ""),
        _why(flow) if has_failed else _reason(context),
        served.version,
        served.filters,
    )


def _reason(context: RequestContext) -> str:
    if context.served.ended:
        return f"{ENDED}{context.served.ended}"
    return context.route.reason if context.route is not None else ""


def _status(flow: http.HTTPFlow) -> tuple[int, bool]:
    """Return the status, and whether the answer was aborted while the client still waited for it."""
    if flow.error is None:
        return (flow.response.status_code if flow.response is not None else 0), False
    if "disconnect" in flow.error.msg:
        return (flow.response.status_code if flow.response is not None else CLIENT_CLOSED_REQUEST), False
    return BROKEN, True


def _verdict(context: RequestContext, status: int, source: str, *, is_broken: bool, is_relayed: bool) -> str:
    """Return one of `addons.telemetry.observation.VERDICTS`."""
    hides = any(tally.hidden for tally in context.served.filters)
    if is_broken or (status >= 500 and not is_relayed):
        return "failed"
    if (
        status >= 400
        and source == HUB_ITSELF
        and not is_relayed
        and not hides
        and status != CLIENT_CLOSED_REQUEST
    ):
        return "refused"
    if source == "copy":
        return "offline"
    if context.route is not None and context.route.filtered_by:
        return "filtered"
    is_view = context.route is not None and context.route.kind in VIEWED
    return "viewed" if is_view or (context.answerer is not None and source != "cloud") else "relayed"


def _why(flow: http.HTTPFlow) -> str:
    if flow.response is None:
        return without_credentials(flow.error.msg if flow.error is not None else "")
    return without_credentials(
        parse_status(flow.response.raw_content or b"", flow.response.status_code).message
    )


def log_requests(observations: Observations, settings: Settings) -> None:
    """Print requests to the log if the option is set, and to the terminal if mitmdump prints its own lines there."""
    if settings.access_log:
        observations.listen(_log)
    if ctx.master.addons.get("dumper") is not None and ctx.options.flow_detail:
        observations.listen(partial(_print, has_colours=sys.stdout.isatty()))


def _log(seen: Observation) -> None:
    if not seen.is_event:
        logger.info("%s", line(seen))


def _print(seen: Observation, *, has_colours: bool) -> None:
    if not seen.is_event:
        print(line(seen, has_colours=has_colours), flush=True)
