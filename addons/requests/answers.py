"""The hub's own answers, as values: the request, the complete answer, and the receiver of a streamed one."""

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
"""On every answer that the hub makes itself, as on kube-apiserver's."""
NO_HEADERS: Mapping[str, str] = CIMultiDictProxy(CIMultiDict())


def headers_of(content_type: str, warning: str = "") -> dict[str, str]:
    """Make the headers of an answer; `warning` is the cloud's."""
    return {**HEADERS, "Content-Type": content_type, **({"Warning": warning} if warning else {})}


class ClientLeft(Exception):
    """No client takes the rest of an answer."""


class RelayToCloud(Exception):
    """The cloud is to answer a request in the hub's stead. The component that raises this has begun no answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. A body in pieces is made as the client reads it, and has a length if the headers give one."""

    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)
    """Iterating may give a header several times."""
    status: int = 200


class ClientStream(Protocol):
    """Takes an answer of unknown length."""

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Send the head of a 200, and wait until the addons have seen it. ClientLeft as `write`."""

    async def write(self, data: bytes) -> None:
        """Send a piece, and wait while the client does not read. ClientLeft when the stream is over."""

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        """Send pieces that are made as they are taken, and let other tasks work in between."""

    @property
    def outlet(self) -> Callable[[bytes], bool] | None:
        """Sends a piece if the client has space for it; returns False, and sends nothing, if the caller must `write`
        it.

        None for a client that always needs `write`. Set once the answer has begun.
        """


@dataclass(slots=True)
class Served:
    """Facts of an answer for people. The answerer fills them in."""

    source: str = ""
    """`cloud`, `copy`, `leader`, or `hub`; "" where it is not known."""
    version: int = 0
    """The resourceVersion of the answer; 0 where it is not known."""
    filters: tuple[Tally, ...] = ()
    ended: str = ""
    """Why the hub ended a watch that was relayed; "" where it did not."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request, with the facts that the hub needs to answer it itself."""

    info: RequestInfo
    component: str
    caller: Caller
    route: Route
    _: KW_ONLY
    target: str = ""
    """The target as on the wire."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    """With credentials. Keys match in any case. A view is answered by the values above alone, and gets none."""
    body: bytes = b""
    reads_differences: bool = False
    """The client is a hub that reads watches as differences (`kube.differences.records`) and lists in zstd."""
    sent: int = 0
    """How many servers may have received the request before the hub answers it."""
    peer: str = ""
    """On the peer port: the node whose hub asks."""
    served: Served = field(default_factory=Served)


class Answerer(Protocol):
    """Answers the requests of one route."""

    async def answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        """The complete answer; None where it was streamed, to its end. StatusError where that is the answer.

        RelayToCloud where a view or a cached relay leaves the answer to the cloud.
        """


def object_answer(obj: Encoded, status: int = 200) -> Answer:
    return Answer(obj.body(), {**HEADERS, "Content-Type": obj.codec.content_type}, status)


def status_answer(error: StatusError) -> Answer:
    headers = {**HEADERS, "Content-Type": "application/json"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return Answer(error.to_json(), headers, error.code)
