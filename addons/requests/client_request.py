"""One request as a value: what a client wants, who the client is, and the route that the hub decided on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from addons.requests.caller import Caller
from addons.requests.route_decision import Route
from kube.requests.request_info import RequestInfo


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """What the hub needs to answer a request itself."""

    info: RequestInfo
    component: str
    caller: Caller
    route: Route
    _: KW_ONLY
    reads_differences: bool = False
    """The client is a hub that reads watches as differences (`kube.differences.records`) and lists in zstd."""
    was_sent: bool = False
    """A server may have received the request before the hub answers it."""
    peer: str = ""
    """On the peer port: the node whose hub asks."""
