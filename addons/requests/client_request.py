"""One request as a value: what a client wants, who the client is, the route that the hub decided on, the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from addons.requests.caller import Caller
from addons.requests.route_decision import Route
from kube.requests.request_info import RequestInfo


class ClientStream(Protocol):
    """Takes the body of an answer without the connection between mitmproxy and the origin."""

    async def begun(self) -> bool:
        """Return when mitmproxy has the answer's head: whether `write` may follow.

        It may not where mitmproxy holds the whole answer, for a person to edit it.
        """

    async def write(self, data: bytes) -> None:
        """Send a piece, and wait while the client does not read. ConnectionError when the stream is over."""

    def outlet(self) -> Callable[[bytes], bool] | None:
        """What sends a piece if the client has room for it, and returns False where that is for `write` to do.

        None for a client that always goes by `write`. The outlet is there once the head has begun.
        """


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
    stream: ClientStream | None = None
    """Takes a body of many pieces; None where the body goes the way of the answer's head."""
