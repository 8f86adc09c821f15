"""First in the chain: parses which objects a request asks for and which component asks, or refuses it as a
kube-apiserver would."""

from __future__ import annotations

from functools import lru_cache

from mitmproxy import http

from addons.proxy.listener_mode import listener_of
from addons.requests.caller import Listener
from addons.requests.hidden_credentials import headers_of, hide, path_of
from addons.requests.request_context import RequestContext, begin
from kube.differences.records import are_accepted
from kube.errors import StatusError, bad_request, forbidden
from kube.http.browser_check import OwnAddress, refuse_probes, refuse_web_pages
from kube.requests.component import component_of
from kube.requests.request_info import parse_request
from kube.requests.websocket_offer import offer_of

_parsed = lru_cache(maxsize=128)(parse_request)
"""`parse_request`, cached, because components repeat most of their requests."""


class Resolve:
    """Makes the flow's `RequestContext`. All later parts refuse a request without one."""

    name = "edgehub-resolve"

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()

    def allow(self, names: frozenset[str]) -> None:
        """Accept further host names at the plain listener."""
        self._names = names

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        hide(flow.request)
        headers, listener = flow.request.headers, listener_of(flow.client_conn)
        user_agent = headers.get("user-agent", "")
        if listener is None:
            raise forbidden("the hub does not serve this listener")
        if listener in (Listener.TLS, Listener.PEER) and not flow.client_conn.tls_established:
            raise bad_request("Client sent an HTTP request to an HTTPS server.")
        if listener is Listener.PLAIN:
            host, port = flow.client_conn.sockname[:2]
            own = OwnAddress(host, port, self._names)
            refuse_web_pages(own, flow.request.authority, headers.get_all)
            refuse_probes(user_agent)
        if not flow.request.is_http2:
            # Of an absolute target only the path is used: its host does not choose the server.
            flow.request.data.authority = b""
        # As on the wire: mitmproxy's own attribute is in upper case, and kube-apiserver knows no method `get`.
        info = _parsed(flow.request.data.method.decode("latin-1"), _target(flow.request))
        if info.type is not None and info.subresource != "proxy" and "//" in info.path:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        may_switch = listener is not Listener.PEER and not flow.request.is_http2 and "upgrade" in headers
        websocket = offer_of(headers_of(flow.request)) if may_switch else None
        context = RequestContext(
            info=info,
            component=component_of(user_agent),
            listener=listener,
            accept=headers.get("accept"),
            websocket=websocket,
            reads_differences=websocket is None and are_accepted(headers.get("accept-encoding", "")),
        )
        begin(flow, context)

    def error(self, flow: http.HTTPFlow) -> None:
        """Record a request that mitmproxy refused by itself."""
        hide(flow.request)


def _target(request: http.Request) -> str:
    """Return the request's target as it was on the wire; StatusError 400 if it has bytes that are not ASCII."""
    try:
        return path_of(request).decode("ascii")
    except UnicodeDecodeError:
        raise bad_request("the request's target has bytes that are not ASCII") from None
