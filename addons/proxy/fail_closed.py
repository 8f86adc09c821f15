"""Hooks that fail closed: mitmproxy only logs a hook that raises, and sends the request on.

A guarded hook answers a Status instead, or ends the connection. A request is never sent on, and a body never handed
out, past an addon that did not do its work.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakSet

from mitmproxy import connection, http, tls
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from OpenSSL import SSL

from addons.server.messages import refuse
from addons.server.peer.lent_tunnel import TunnelRequest
from addons.telemetry import metrics
from kube.errors import StatusError, internal

_refused: WeakSet[http.Response] = WeakSet()
"""The Statuses that took the place of an answer whose head had come."""

logger = logging.getLogger(__name__)

FLOW_HOOKS = ("requestheaders", "request", "responseheaders", "response", "error")
CONNECTION_HOOKS = (
    *("client_connected", "client_disconnected", "server_connect"),
    *("tls_start_client", "tls_established_client", "tls_failed_client", "open_tunnel"),
)
"""The hooks of the hub's parts; the last one is of connections that do not speak HTTP."""
BEFORE_ANSWER = ("requestheaders", "request")
"""Hooks with nothing to do once a flow has its answer."""
MALFORMED = frozenset({400, 413, 414, 431})
"""Codes of requests that are malformed, or larger than a bound."""


def guarded(part: Any, hook: str) -> Callable[[Any], Awaitable[None] | None]:
    """A hook of a part of the hub, plain or async, which never raises.

    A StatusError that a flow's hook raises becomes the answer as it is, any other error a counted 500. A hook of a
    connection ends the connection.
    """
    body = getattr(part, hook)
    if hook not in FLOW_HOOKS:

        def of_connection(data: Any) -> None:
            try:
                body(data)
            except Exception as error:
                _end(data, _status(part.name, hook, error))

        return of_connection

    def is_done(answer: http.Response) -> bool:
        # A later part that has the answer streamed would send upstream's body in the Status.
        return hook in BEFORE_ANSWER or (hook == "responseheaders" and answer in _refused)

    async def later(flow: http.HTTPFlow) -> None:
        if flow.response is not None and is_done(flow.response):
            return
        try:
            await body(flow)
        except Exception as error:
            _answer(flow, hook, _status(part.name, hook, error))

    def at_once(flow: http.HTTPFlow) -> None:
        if flow.response is not None and is_done(flow.response):
            return
        try:
            body(flow)
        except Exception as error:
            _answer(flow, hook, _status(part.name, hook, error))

    return later if inspect.iscoroutinefunction(body) else at_once


def _status(name: str, hook: str, error: Exception) -> StatusError:
    if isinstance(error, StatusError):
        return error
    logger.error("%s.%s failed", name, hook, exc_info=error)
    metrics.HOOK_ERRORS.labels(name, hook).inc()
    return internal(f"the hub could not handle this request ({name})")


def _answer(flow: http.HTTPFlow, hook: str, error: StatusError) -> None:
    if error.code in MALFORMED:
        metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
    refuse(flow, error)
    if hook == "responseheaders" and flow.response is not None:
        _refused.add(flow.response)


def _end(data: object, why: StatusError) -> None:
    match data:
        case TunnelRequest():
            data.lent, data.refusal = None, why
        case ServerConnectionHookData():
            data.server.error = str(why)
        case tls.TlsData():
            # Without a connection object mitmproxy would make one by its own rules of trust. This one trusts no server
            # and has no certificate, so no handshake can succeed.
            context = SSL.Context(SSL.TLS_METHOD)
            context.set_verify(SSL.VERIFY_PEER)
            data.ssl_conn = SSL.Connection(context)
            data.ssl_conn.set_accept_state()
        case connection.Client():
            data.error = str(why)
