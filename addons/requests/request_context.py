"""What the hub knows of one request, from its first addon to its last.

The hub keeps it beside the flow, not in it: mitmproxy writes flows to files and to its web interface, and a caller's
token must be in neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mitmproxy import http

from addons.requests.caller import Caller, Lending, Listener
from addons.requests.client_request import ClientRequest, ClientStream
from addons.requests.route_decision import Route
from kube.requests.request_info import RequestInfo


@dataclass(slots=True)
class RequestContext:
    """One request on its way. Addons fill it in their order."""

    info: RequestInfo
    component: str
    listener: Listener
    accept: str | None
    caller: Caller = Caller(Lending.NONE)
    reads_differences: bool = False
    route: Route | None = None
    server: str = ""
    ticket: str = ""
    """Of a request that goes to the origin; without one it goes to the cloud."""
    failover: Callable[[http.HTTPFlow], None] | None = None
    """Turns the request to the origin when its server fails; None where only the cloud can answer."""
    stream_too_large: Callable[[bytes], bytes] | None = None
    """Handles the pieces of an answer that is too large to hold. None where the hub must hold the answer whole."""
    was_sent: bool = False
    """A server may have had the request before it was turned to the origin."""
    counted: bool = False
    peer: str = ""
    """On the peer port: the node whose hub asks."""

    def client_request(self, stream: ClientStream | None = None) -> ClientRequest:
        """The request as a value, for those who answer it. `stream` is the client's side of it."""
        assert self.route is not None
        return ClientRequest(
            self.info,
            self.component,
            self.caller,
            self.route,
            reads_differences=self.reads_differences,
            was_sent=self.was_sent,
            peer=self.peer,
            stream=stream,
        )


_contexts: WeakKeyDictionary[http.HTTPFlow, RequestContext] = WeakKeyDictionary()


def begin(flow: http.HTTPFlow, context: RequestContext) -> None:
    """Let the addons behind find the context of a flow."""
    _contexts[flow] = context


def context_of(flow: http.HTTPFlow) -> RequestContext | None:
    """The context of a flow; None when the request was never read."""
    return _contexts.get(flow)
