"""Hooks that fail closed: mitmproxy only logs an exception of a hook, and continues with the request.

A guarded hook answers with a Status instead, or closes the connection. So no request is relayed, and no body sent,
after an addon failed to do its work.
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
"""The connection hooks of the hub's parts; `open_tunnel` is for peer connections that do not speak HTTP."""
REQUEST_HOOKS = ("requestheaders", "request")
"""Hooks that are skipped once a flow has a response."""
MALFORMED = frozenset({400, 413, 414, 431})
"""Status codes for requests that are malformed or exceed a bound."""


def guarded(parts: Sequence[Any], hook: str) -> Callable[[Any], Awaitable[None]]:
    """Return one hook that calls this hook of all parts, sync or async, in their order, and never raises.

    If a flow's hook raises a StatusError, that becomes the answer; any other exception becomes a counted 500. An
    exception in a connection's hook closes the connection.
    """
    steps = [(part.name, getattr(part, hook)) for part in parts if hasattr(part, hook)]
    is_before, is_at_head = hook in REQUEST_HOOKS, hook == "responseheaders"

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
                    return  # a later part could enable streaming, and upstream's body would follow the Status

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
            # Without this object mitmproxy would create one by its own trust rules. This one trusts no server and has
            # no certificate, so its handshake fails.
            context = SSL.Context(SSL.TLS_METHOD)
            context.set_verify(SSL.VERIFY_PEER)
            data.ssl_conn = SSL.Connection(context)
            data.ssl_conn.set_accept_state()
        case connection.Client():
            data.error = str(why)
