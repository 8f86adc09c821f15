"""The hooks of a flow, as mitmproxy's own connection handler calls them: addons, then people who hold, edit or kill."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable
from typing import Any

import mitmproxy.proxy.layers.http  # noqa: F401 - declares the hooks
from mitmproxy import ctx, flow, http
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.hooks import all_hooks

from addons.requests.answers import ClientLeft
from addons.server.request import ServedRequest

NO_SERVER = Server(address=None, state=ConnectionState.OPEN)
"""The server of a flow that the hub answers."""

HOOKS: dict[str, Any] = {**all_hooks}


class Killed(Exception):
    """A person has ended the flow."""


def flow_of(request: ServedRequest) -> http.HTTPFlow:
    """The flow of a request that has just come."""
    made = request.flow = http.HTTPFlow.__new__(http.HTTPFlow)
    # Past the constructor, half of whose time goes to making an identifier by the class of UUIDs.
    digits = os.urandom(16).hex()
    made.__dict__ = {
        "id": f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}",
        "client_conn": request.client,
        "server_conn": NO_SERVER,
        "live": True,
        "timestamp_created": time.time(),
        "intercepted": False,
        "_resume_event": None,
        "_backup": None,
        "marked": "",
        "is_replay": None,
        "metadata": {},
        "comment": "",
        "request": request.head,
    }
    return made


def requestheaders(request: ServedRequest, shown: http.HTTPFlow) -> Awaitable[None]:
    return _run("requestheaders", request, shown)


def request_complete(request: ServedRequest, shown: http.HTTPFlow) -> Awaitable[None]:
    return _run("request", request, shown)


def responseheaders(request: ServedRequest, shown: http.HTTPFlow) -> Awaitable[None]:
    return _run("responseheaders", request, shown)


def response_complete(request: ServedRequest, shown: http.HTTPFlow) -> Awaitable[None]:
    request.is_observed = True
    if shown.response is not None:
        shown.response.timestamp_end = time.time()
    return _run("response", request, shown)


async def error(shown: http.HTTPFlow) -> None:
    await ctx.master.addons.handle_lifecycle(HOOKS["error"](shown))


async def _run(name: str, request: ServedRequest, shown: http.HTTPFlow) -> None:
    """Return when the addons have handled the hook, and the flow is not held. ClientLeft or Killed otherwise."""
    request.shielded += 1
    try:
        hook = object.__new__(
            HOOKS[name]
        )  # mitmproxy's own asks at each hook whether its class is a dataclass
        hook.flow = shown
        await ctx.master.addons.handle_lifecycle(hook)
        if shown.intercepted:
            await shown.wait_for_resume()
    finally:
        request.shielded -= 1
    if shown.error is not None and shown.error.msg == flow.Error.KILLED_MESSAGE:
        raise Killed
    if request.why_left:
        raise ClientLeft
