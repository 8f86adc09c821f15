"""Calls the hooks of a flow like mitmproxy's own handler: first the addons, then a user can intercept, edit or kill
it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any

import mitmproxy.proxy.layers.http  # noqa: F401 - declares the hooks
from mitmproxy import ctx, http
from mitmproxy import flow as mitmproxy_flow
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.hooks import all_hooks

from addons.requests.answers import ClientLeft
from addons.server.request import ServedRequest

NO_SERVER = Server(address=None, state=ConnectionState.OPEN)
"""Placeholder for the server of a flow that the hub answers itself."""

HOOKS: dict[str, Any] = {**all_hooks}


class Killed(Exception):
    """Raised when a user has killed the flow."""


def flow_of(request: ServedRequest) -> http.HTTPFlow:
    """Create the flow of a new request."""
    made = request.flow = http.HTTPFlow(request.client, NO_SERVER, live=True)
    made.request = request.head
    return made


def requestheaders(request: ServedRequest, flow: http.HTTPFlow) -> Awaitable[None]:
    return _run(HOOKS["requestheaders"](flow), request, flow)


def request_complete(request: ServedRequest, flow: http.HTTPFlow) -> Awaitable[None]:
    return _run(HOOKS["request"](flow), request, flow)


def responseheaders(request: ServedRequest, flow: http.HTTPFlow) -> Awaitable[None]:
    return _run(HOOKS["responseheaders"](flow), request, flow)


def response_complete(request: ServedRequest, flow: http.HTTPFlow) -> Awaitable[None]:
    request.is_observed = True
    if flow.response is not None:
        flow.response.timestamp_end = time.time()
    return _run(HOOKS["response"](flow), request, flow)


async def error(flow: http.HTTPFlow) -> None:
    await ctx.master.addons.handle_lifecycle(HOOKS["error"](flow))


async def _run(hook: Any, request: ServedRequest, flow: http.HTTPFlow) -> None:
    """Return when the addons have handled the hook and the flow is resumed. ClientLeft or Killed otherwise."""
    request.shielded += 1
    try:
        await ctx.master.addons.handle_lifecycle(hook)
        if flow.intercepted:
            await flow.wait_for_resume()
    finally:
        request.shielded -= 1
    if flow.error is not None and flow.error.msg == mitmproxy_flow.Error.KILLED_MESSAGE:
        raise Killed
    if request.why_left:
        raise ClientLeft
