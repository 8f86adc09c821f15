"""Hooks that fail closed: mitmproxy only logs a hook that raises, and sends the request on.

A guarded hook answers a Status instead, or ends the connection. A request is never sent on, and a body never handed
out, past an addon that did not do its work.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mitmproxy import connection, http, tls
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from OpenSSL import SSL

from addons.server.messages import refuse
from addons.server.peer.lent_tunnel import TunnelRequest
from addons.telemetry import metrics
from kube.errors import StatusError, internal

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


def guarded(parts: Sequence[Any], hook: str) -> Callable[[Any], Awaitable[None]]:
    """One hook of all parts of the hub that have it, plain or async, in their order; it never raises.

    A StatusError that a flow's hook raises becomes the answer as it is, any other error a counted 500. A hook of a
    connection ends the connection.
    """
    steps = [(part.name, getattr(part, hook)) for part in parts if hasattr(part, hook)]
    is_before, is_at_head = hook in BEFORE_ANSWER, hook == "responseheaders"

    async def of_connection(data: Any) -> None:
        for name, step in steps:
            try:
                step(data)
            except Exception as error:
                _end(data, _status(name, hook, error))

    async def of_flow(flow: http.HTTPFlow) -> None:
        for name, step in steps:
            if is_before and flow.response is not None:
                return
            try:
                if (done := step(flow)) is not None:
                    await done
            except Exception as error:
                _answer(flow, _status(name, hook, error))
                if is_at_head:
                    return  # a later part that has the answer streamed would send upstream's body in the Status

    return of_flow if hook in FLOW_HOOKS else of_connection


def _status(name: str, hook: str, error: Exception) -> StatusError:
    if isinstance(error, StatusError):
        return error
    logger.error("%s.%s failed", name, hook, exc_info=error)
    metrics.HOOK_ERRORS.labels(name, hook).inc()
    return internal(f"the hub could not handle this request ({name})")


def _answer(flow: http.HTTPFlow, error: StatusError) -> None:
    if error.code in MALFORMED:
        metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
    refuse(flow, error)


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
