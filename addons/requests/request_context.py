"""The hub's context of one request, from its first addon to its last.

The hub keeps it beside the flow, not in it: mitmproxy writes flows to files and to its web interface, and a caller's
token must be in neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, final

from mitmproxy import http
from multidict import CIMultiDict

from addons.requests.answers import NO_HEADERS, Answerer, ClientRequest, Served
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.hidden_credentials import path_of, with_credentials
from addons.requests.route_decision import SENT, Route, RouteKind
from kube.errors import internal
from kube.http.transport.connection_pool import Connection
from kube.requests.request_info import RequestInfo
from kube.requests.websocket_offer import WebSocketOffer


class ServerConnections(Protocol):
    """The connections that a relayed request may go by: those of one identity to one server."""

    @property
    def scheme(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def available(self) -> Connection | None:
        """Return an open one with a free stream; None without one."""

    async def opened(self) -> Connection:
        """Return one with a free stream, if need be a new one; OSError without one."""


@final
class RelayUpstream:
    """The right to send a request to a server. No request is sent without one, and `addons.egress` alone makes it."""

    __slots__ = ("connections", "route")

    def __init__(self, route: Route | None, connections: ServerConnections) -> None:
        """StatusError for a request whose route leads to no server."""
        if route is None or route.kind not in SENT:
            raise internal("no component answers the request")
        self.route, self.connections = route, connections


@dataclass(slots=True)
class RequestContext:
    """The state of one request. The hub's parts fill it in their order."""

    info: RequestInfo
    component: str
    listener: Listener
    accept: str | None
    caller: Caller = field(default=Caller(CredentialSource.NONE), init=False)
    reads_differences: bool = False
    websocket: WebSocketOffer | None = None
    """The offer of a client that asks for a WebSocket. A server, or a watch of the hub's own, opens one."""
    route: Route | None = field(default=None, init=False)
    server: str = field(default="", init=False)
    kubelet_port: int = field(default=0, init=False)
    """The port of this node's kubelet, where that answers the request; 0 where it does not."""
    upstream: RelayUpstream | None = field(default=None, init=False)
    """Where the request goes; None for a request that goes nowhere."""
    is_unframed: bool = field(default=False, init=False)
    """Only the end of the server's connection ends its answer: a truncated one looks complete (RFC 9112, 6.3)."""
    answerer: Answerer | None = field(default=None, init=False)
    """Answers the request instead of a server; None if it goes to the cloud."""
    relay: Callable[[http.HTTPFlow], None] | None = field(default=None, init=False)
    """Relays the request instead of the answerer, or raises a StatusError; None if it may not be relayed."""
    failover: Callable[[http.HTTPFlow], None] | None = field(default=None, init=False)
    """Answers the request if its server fails; None if only the cloud can answer."""
    finish: Callable[[str], None] | None = field(default=None, init=False)
    """Ends a server's answer, as the server would, with the reason; None while no server answers."""
    is_write: bool = field(default=False, init=False)
    """The cloud's answer has the objects' newest state: cached forms are replaced before the client has it."""
    asked_at: int = field(default=0, init=False)
    """How many writes had ended when the request came (`addons.offline.accepted.accepted_writes`)."""
    stream_too_large: Callable[[bytes], bytes] | None = field(default=None, init=False)
    """Handles the pieces of an answer that is too large to buffer. None if the hub must buffer all of it."""
    sent: int = field(default=0, init=False)
    """How many servers may have had the request before the hub answers it."""
    counted: bool = field(default=False, init=False)
    peer: str = field(default="", init=False)
    """On the peer port: the node whose hub asks."""
    served: Served = field(default_factory=Served, init=False)

    @property
    def is_view(self) -> bool:
        """Whether the answer comes from a view: it may take long, and only the request's head uses memory."""
        return self.route is not None and self.route.kind in (RouteKind.VIEW, RouteKind.PEER)

    def client_request(self, request: http.Request) -> ClientRequest:
        """The request as a value, for its answerer."""
        assert self.route is not None
        headers = (
            NO_HEADERS if self.is_view else CIMultiDict(with_credentials(request).headers.items(multi=True))
        )
        return ClientRequest(
            self.info,
            self.component,
            self.caller,
            self.route,
            target=path_of(request).decode(),
            headers=headers,
            body=request.raw_content or b"",
            reads_differences=self.reads_differences,
            sent=self.sent,
            peer=self.peer,
            served=self.served,
        )


_ATTRIBUTE = "edgehub_context"
"""The attribute of a flow that holds its context. mitmproxy saves and copies only attributes that it knows."""


def begin(flow: http.HTTPFlow, context: RequestContext) -> None:
    """Let the later parts find the context of a flow."""
    vars(flow)[_ATTRIBUTE] = context


def context_of(flow: http.HTTPFlow) -> RequestContext | None:
    """The context of a flow; None when the request was never read."""
    return flow.__dict__.get(_ATTRIBUTE)
