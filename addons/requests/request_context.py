"""The hub's context of one request, from its first addon to its last.

The context is not stored in the flow's state: mitmproxy writes that to files and to its web interface, and neither may
contain a caller's token.
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
    """The connections of one identity to one server, for a relayed request."""

    @property
    def scheme(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def available(self) -> Connection | None:
        """Return an open connection with a free stream; None if there is none."""

    async def opened(self) -> Connection:
        """Return a connection with a free stream, opening one if necessary. OSError if that fails."""


@final
class RelayUpstream:
    """Permission to send a request to a server. `addons.server.relay` requires one, and only `addons.egress` creates
    it.
    """

    __slots__ = ("connections", "route")

    def __init__(self, route: Route | None, connections: ServerConnections) -> None:
        """Create the permission. StatusError if the route leads to no server."""
        if route is None or route.kind not in SENT:
            raise internal("no component answers the request")
        self.route, self.connections = route, connections


@dataclass(slots=True)
class RequestContext:
    """The state of one request. The hub's parts fill it, in their order."""

    info: RequestInfo
    component: str
    listener: Listener
    accept: str | None
    caller: Caller = field(default=Caller(CredentialSource.NONE), init=False)
    reads_differences: bool = False
    websocket: WebSocketOffer | None = None
    """The client's offer of a WebSocket. A server, or a watch of the hub's own, accepts it."""
    route: Route | None = field(default=None, init=False)
    server: str = field(default="", init=False)
    kubelet_port: int = field(default=0, init=False)
    """Port of this node's kubelet if kubelet answers the request; 0 otherwise."""
    upstream: RelayUpstream | None = field(default=None, init=False)
    """The server's connections for the request; None if no server gets it."""
    is_unframed: bool = field(default=False, init=False)
    """Whether only the close of the server's connection ends its answer: a truncated answer looks complete then (RFC
    9112, 6.3).
    """
    answerer: Answerer | None = field(default=None, init=False)
    """Answers the request instead of a server; None if it goes to the cloud."""
    relay: Callable[[http.HTTPFlow], None] | None = field(default=None, init=False)
    """Relays the request instead of the answerer, or raises a StatusError; None if it may not be relayed."""
    failover: Callable[[http.HTTPFlow], None] | None = field(default=None, init=False)
    """Switches to a local answer if the server fails; None if only the cloud can answer."""
    finish: Callable[[str], None] | None = field(default=None, init=False)
    """Ends a server's answer as the server would; its argument is the reason. None while no server answers."""
    is_write: bool = field(default=False, init=False)
    """Whether the request writes: cached forms of the objects are replaced before the client gets the cloud's
    answer.
    """
    asked_at: int = field(default=0, init=False)
    """Number of writes that had ended when the request arrived (`addons.offline.accepted.accepted_writes`)."""
    stream_too_large: Callable[[bytes], bytes] | None = field(default=None, init=False)
    """Processes the pieces of an answer that is too large to buffer; None if the hub must buffer the complete
    answer.
    """
    sent: int = field(default=0, init=False)
    """Number of servers that may have received the request before the hub answers it."""
    counted: bool = field(default=False, init=False)
    peer: str = field(default="", init=False)
    """Node whose hub sent the request; "" except on the peer port."""
    served: Served = field(default_factory=Served, init=False)

    @property
    def is_view(self) -> bool:
        """Whether a view answers: the answer may take long, but of the request only the head uses memory."""
        return self.route is not None and self.route.kind in (RouteKind.VIEW, RouteKind.PEER)

    def client_request(self, request: http.Request) -> ClientRequest:
        """Return the request as a value, for its answerer."""
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
"""Attribute of a flow that holds its context. mitmproxy saves and copies only attributes that it knows."""


def begin(flow: http.HTTPFlow, context: RequestContext) -> None:
    """Attach the context to its flow."""
    vars(flow)[_ATTRIBUTE] = context


def context_of(flow: http.HTTPFlow) -> RequestContext | None:
    """Return the context of a flow; None if the request was never parsed."""
    return flow.__dict__.get(_ATTRIBUTE)
