"""Types of the hub's own answers: the request, a complete answer, and the stream that receives a long one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from multidict import CIMultiDict, CIMultiDictProxy

from addons.requests.caller import Caller
from addons.requests.route_decision import Route
from addons.telemetry.observation import Tally
from kube.errors import StatusError
from kube.requests.request_info import RequestInfo
from kube.wire.encoded_objects import Encoded

HEADERS = {"Cache-Control": "no-cache, private"}
"""Headers of every answer that the hub itself makes: kube-apiserver sends the same."""
NO_HEADERS: Mapping[str, str] = CIMultiDictProxy(CIMultiDict())


def headers_of(content_type: str, warning: str = "") -> dict[str, str]:
    """Return the headers of an answer; `warning` is a Warning header from the cloud."""
    return {**HEADERS, "Content-Type": content_type, **({"Warning": warning} if warning else {})}


class ClientLeft(Exception):
    """Raised when no client reads the rest of an answer."""


class RelayToCloud(Exception):
    """Raised by a component when the cloud must answer the request instead. It has sent nothing by then."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. A body given as an iterable is produced while the client reads; only `headers` can give its
    length.
    """

    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)
    """Iteration may return a header several times."""
    status: int = 200


class ClientStream(Protocol):
    """Receives an answer of unknown length, and sends it to the client."""

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Send the head of a 200, and wait until the addons have seen it. ClientLeft as in `write`."""

    async def write(self, data: bytes) -> None:
        """Send a piece, and wait for space while the client does not read. ClientLeft when the stream has ended."""

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        """Send pieces, producing each when the client has space for it. Other tasks run in between."""

    @property
    def try_write(self) -> Callable[[bytes], bool] | None:
        """Function that sends a piece if the client has space for it. It returns False, and sends nothing, if the
        caller must `write` the piece.

        None before the answer has begun, and for a client that always needs `write`.
        """


@dataclass(slots=True)
class Served:
    """Facts about an answer, for interfaces and logs. The answerer sets them."""

    source: str = ""
    """Origin of the answer: `cloud`, `copy`, `leader`, or `hub`; "" if unknown."""
    version: int = 0
    """The resourceVersion of the answer; 0 if unknown."""
    filters: tuple[Tally, ...] = ()
    ended: str = ""
    """Why the hub ended a relayed watch; "" if it did not."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request, with the facts that the hub needs to answer it itself."""

    info: RequestInfo
    component: str
    caller: Caller
    route: Route
    _: KW_ONLY
    target: str = ""
    """The request target, as received."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    """All headers, credentials included. Keys are case-insensitive. Empty for a view, which needs only the values
    above.
    """
    body: bytes = b""
    reads_differences: bool = False
    """Whether the client is a hub, which reads watches as differences (`kube.differences.records`) and lists in
    zstd.
    """
    sent: int = 0
    """Number of servers that may have received the request before the hub answers it."""
    peer: str = ""
    """Node whose hub sent the request; "" except on the peer port."""
    served: Served = field(default_factory=Served)


class Answerer(Protocol):
    """Answers the requests of one route."""

    async def answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        """Return the complete answer, or None once it was streamed to its end. StatusError if the answer is an error.

        RelayToCloud if a view or a cached relay leaves the answer to the cloud.
        """


def object_answer(obj: Encoded, status: int = 200) -> Answer:
    return Answer(obj.body(), {**HEADERS, "Content-Type": obj.codec.content_type}, status)


def status_answer(error: StatusError) -> Answer:
    headers = {**HEADERS, "Content-Type": "application/json"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return Answer(error.to_json(), headers, error.code)
