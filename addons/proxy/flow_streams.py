"""Gives the body of an answer to a flow's stream, without the connection between mitmproxy and the origin.

The head of an answer comes over that connection. A body that followed there would cross two sockets and two parsers of
HTTP: they cost more than all else that the hub does about an event of a watch, which a leader sends to a hundred
followers, and their buffers hold what a client does not read.

An event costs a leader what is done for each follower. So a piece for a client of HTTP/2 that has room goes to the
socket as one frame in one TLS record. mitmproxy's layers and h2 make the same bytes by four generators, six objects and
two state machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import ref

from h2.stream import StreamState
from mitmproxy import http
from mitmproxy.proxy.layers.http import HttpStream
from OpenSSL import SSL

from addons.proxy.http.flow_control import handler_of
from addons.proxy.http.gathered_writes import GatheringWriter
from addons.proxy.http.http_connections import LastingH2Connection
from addons.proxy.http.http_layer import layer_of
from addons.proxy.http.request_stream import RequestStream

LARGEST_WHOLE = 16 * 1024 - 9
"""Bytes of a piece that fits one TLS record with the head of its frame. Every peer takes frames of this size."""
SEALING = 512
"""Bytes for which OpenSSL has room beyond the plain text: more than any cipher adds to a record."""
TAKES_DATA = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)
"""The states of a stream in which the hub may send a body."""


class FlowStream:
    """`addons.requests.client_request.ClientStream` of one flow, which mitmproxy alone keeps."""

    def __init__(self, flow: http.HTTPFlow) -> None:
        self._flow = ref(flow)
        self._client = flow.client_conn
        self._stream: RequestStream | None = None

    async def begun(self) -> bool:
        stream = self._find()
        return stream is not None and await stream.response_begun()

    async def write(self, data: bytes) -> None:
        stream, handler = self._find(), handler_of(self._client.id)
        if stream is None or not stream.is_streaming or handler is None:
            raise ConnectionResetError("the client has left")
        await handler.send_piece(stream, data)

    def outlet(self) -> Callable[[bytes], bool] | None:
        """`WholePieces.send` for this stream."""
        client = self._client
        stream, handler, layer = self._find(), handler_of(client.id), layer_of(client.id)
        found = layer.of_http2 if layer is not None else None
        transport = handler.transports.get(client) if handler is not None else None
        if stream is None or handler is None or found is None or transport is None:
            return None
        h2_conn, tls = found
        writer, noted = transport.writer, handler.timeout_watchdog.register_activity
        if not isinstance(writer, GatheringWriter) or stream.stream_id not in h2_conn.streams:
            return None
        return WholePieces(stream, h2_conn, tls, writer.transport, noted).send

    def _find(self) -> RequestStream | None:
        """The stream of the flow; None once it has ended."""
        layer, flow = layer_of(self._client.id), self._flow()
        if layer is None or flow is None:
            return None
        if self._stream is None:
            found = next((each for each in layer.streams.values() if _is_of(each, flow)), None)
            self._stream = found if isinstance(found, RequestStream) else None
        if self._stream is None or layer.streams.get(self._stream.stream_id) is not self._stream:
            return None
        return self._stream


def _is_of(stream: HttpStream, flow: http.HTTPFlow) -> bool:
    return getattr(stream, "flow", None) is flow  # a stream has no flow before its request's head


class WholePieces:
    """Sends pieces of the response's body of one stream."""

    __slots__ = ("_framed", "_h2_conn", "_noted", "_stream", "_tls", "_transport")

    def __init__(
        self,
        stream: RequestStream,
        h2_conn: LastingH2Connection,
        tls: SSL.Connection | None,
        transport: asyncio.WriteTransport,
        noted: Callable[[], None],
    ) -> None:
        """`noted` is called at each piece that goes."""
        self._stream = stream
        self._h2_conn = h2_conn
        self._framed = h2_conn.streams[stream.stream_id]
        self._tls = tls
        self._transport = transport
        self._noted = noted

    def send(self, data: bytes) -> bool:
        """Send a piece; False where the client has no room for it, or has left. Nothing has been sent then.

        What one turn of the loop wrote for this client is with the socket: only call this in a turn of its own.
        """
        if not self._has_room(len(data)):
            return False
        response = self._stream.flow.response
        assert response is not None
        change = response.stream
        made = change(data) if callable(change) else data
        plain = self._frame(made if isinstance(made, bytes) else b"".join(made))
        self._noted()
        self._transport.write(plain if self._tls is None else seal(self._tls, plain))
        return True

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes can go in one frame, and nothing waits before them."""
        h2_conn, framed, transport = self._h2_conn, self._framed, self._transport
        return (
            size <= LARGEST_WHOLE
            and size <= framed.outbound_flow_control_window
            and size <= h2_conn.outbound_flow_control_window
            and framed.state_machine.state in TAKES_DATA
            and not h2_conn.unread_on(framed.stream_id)
            and not h2_conn._data_to_send
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
            and self._stream.is_streaming
        )

    def _frame(self, data: bytes) -> bytes:
        """A DATA frame as h2 makes it (RFC 9113, 6.1). It changes nothing of an open stream but the windows."""
        size, framed = len(data), self._framed
        framed.outbound_flow_control_window -= size
        self._h2_conn.outbound_flow_control_window -= size
        return b"%b\x00\x00%b%b" % (size.to_bytes(3), framed.stream_id.to_bytes(4), data)


def seal(tls: SSL.Connection, plain: bytes) -> bytes:
    """A record of TLS. Empty when the client has ended its TLS: the end of its connection follows."""
    try:
        tls.sendall(plain)
    except (SSL.ZeroReturnError, SSL.SysCallError):
        return b""
    most = len(plain) + SEALING
    sealed = tls.bio_read(most)
    while len(sealed) % most == 0:  # a shorter read is the last one
        sealed += tls.bio_read(most)
    return sealed
