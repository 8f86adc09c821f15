"""Plays answers into the streams of flows: the hub's own, and those of servers.

Head and end of an answer pass mitmproxy's layers as those of a server of mitmproxy's own do, and so does the body where
mitmproxy holds it. A body that is streamed passes those layers alone that change it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakValueDictionary

from mitmproxy import http
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)

from addons.proxy.http.messages import response_of_answer, response_of_server, tell_end
from addons.proxy.http.request_stream import RequestStream
from addons.requests.answers import ClientRequest
from addons.requests.exchange.client_side import SWITCHED
from addons.requests.exchange.direct_pieces import DirectPieces
from addons.requests.exchange.request_head import fields_to_send
from addons.requests.hidden_credentials import path_of, sent_fields
from addons.requests.request_context import RelayUpstream, context_of
from kube.http.transport.connection_pool import Connection
from kube.http.transport.request_fields import HeaderFields


@dataclass(slots=True)
class Played(events.Event):
    """Parts of an answer to the request of a stream."""

    stream: RequestStream
    parts: Sequence[HttpEvent]


class Player:
    """The handler of a client's connection. As it is here, that of a replay, whose answer nobody reads."""

    async def server_event(self, event: events.Event) -> None:
        """Have the layers handle an event."""
        raise NotImplementedError  # mitmproxy's handlers have it

    def has_handled(self, hook: commands.StartHook) -> bool:
        """Have the addons handle a hook; whether they have done so at once. Else mitmproxy waits for them."""
        return False

    @property
    def unwritten(self) -> int:
        """Bytes that the client's socket has no room for."""
        return 0

    def has_room(self, stream: RequestStream) -> bool:
        """Whether the client has read enough of what it was sent before."""
        return True

    async def wait_for_room(self, stream: RequestStream) -> None:
        """Return when it has. ClientLeft when it has left."""

    def direct(self, stream: RequestStream) -> DirectPieces | None:
        """A shorter way of the pieces of a stream that is streaming; None where there is none."""
        return None


players: WeakValueDictionary[str, Player] = WeakValueDictionary()
"""By the client's id."""
_shown: WeakKeyDictionary[Connection, Server] = WeakKeyDictionary()


class PlayedStream:
    """`addons.requests.exchange.client_side.ClientSide` of one flow's stream."""

    def __init__(self, stream: RequestStream, streams: Mapping[int, layer.Layer], player: Player) -> None:
        """`streams` are those of the HTTP layer, which forgets one that is over."""
        self._stream = stream
        self._streams = streams
        self._player = player
        self._parts: list[HttpEvent] = []
        self._body: list[bytes] = []
        """What came of a body behind these parts. It goes on as one, because a server may send it byte by byte."""
        self._request = stream.flow.request
        self.address = stream.address
        self.context = context_of(stream.flow)
        self.is_head = self._request.data.method == b"HEAD"
        self.is_body_streamed = bool(self._request.stream)

    @property
    def kept_body(self) -> bytes | bytearray | None:
        return self._stream.kept_body

    def request(self) -> ClientRequest:
        assert self.context is not None
        return self.context.client_request(self._request)

    def leave_to_cloud(self) -> None:
        assert self.context is not None
        assert self.context.relay is not None
        self.context.relay(self._stream.flow)

    def fields_to(self, upstream: RelayUpstream, length: int | None) -> HeaderFields:
        request = self._request
        return fields_to_send(request.data.method, path_of(request), sent_fields(request), upstream, length)

    def goes_by(self, connection: Connection, upstream: RelayUpstream) -> None:
        if (shown := _shown.get(connection)) is None:
            shown = Server(address=(upstream.host, upstream.port), timestamp_start=time.time())
            shown.state = ConnectionState.OPEN
            shown.tls = upstream.scheme == "https"
            _shown[connection] = shown
        self._stream.flow.server_conn = shown

    def answer_head(self, status: int, fields: Iterable[tuple[str, str]]) -> None:
        head = response_of_answer(status, fields)
        tell_end(head, self._request)
        self._parts.append(ResponseHeaders(self._stream.stream_id, head))

    def server_head(self, status: int, fields: HeaderFields, *, is_framed: bool) -> None:
        head = response_of_server(status, fields, self._request, is_framed=is_framed)
        self._parts.append(ResponseHeaders(self._stream.stream_id, head, end_stream=status == SWITCHED))

    def data(self, piece: bytes) -> None:
        self._body.append(piece)

    def _join(self) -> None:
        if self._body:
            self._parts.append(ResponseData(self._stream.stream_id, b"".join(self._body)))
            self._body.clear()

    def trailers(self, fields: HeaderFields) -> None:
        self._join()
        self._parts.append(ResponseTrailers(self._stream.stream_id, http.Headers(fields)))

    def end(self) -> None:
        self._join()
        if self._parts and isinstance(head := self._parts[-1], ResponseHeaders):
            head.end_stream = True
        self._parts.append(ResponseEndOfMessage(self._stream.stream_id))

    def break_off(self, why: str, *, is_clients_fault: bool = False) -> None:
        self._join()
        code = ErrorCode.GENERIC_CLIENT_ERROR if is_clients_fault else ErrorCode.GENERIC_SERVER_ERROR
        self._parts.append(ResponseProtocolError(self._stream.stream_id, why, code))

    @property
    def has_parts(self) -> bool:
        return bool(self._parts or self._body)

    async def play(self) -> None:
        self._join()
        parts, self._parts = self._parts, []
        await self._player.server_event(Played(self._stream, parts))

    def switch(self, receive: Callable[[bytes], None]) -> None:
        self._stream.received = receive

    async def begun(self) -> bool:
        return await self._stream.response_begun()

    @property
    def is_over(self) -> bool:
        return self._stream.is_over or self._streams.get(self._stream.stream_id) is not self._stream

    @property
    def has_room(self) -> bool:
        return self._player.has_room(self._stream)

    async def wait_for_room(self) -> None:
        await self._player.wait_for_room(self._stream)

    def direct(self) -> Callable[[bytes], bool] | None:
        pieces = self._player.direct(self._stream)
        return pieces.send if pieces is not None else None
