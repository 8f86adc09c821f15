"""Sends a piece of a streamed answer to a client of HTTP/2 as one frame, in one TLS record.

An event of a watch costs a leader what is done for each of a hundred followers. mitmproxy's layers and h2 make the same
bytes by four generators, six objects and two state machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from h2.stream import StreamState
from OpenSSL import SSL

from addons.proxy.http.http_connections import HubH2Connection
from addons.proxy.http.request_stream import RequestStream

LARGEST_FRAME = 16 * 1024 - 9
"""Bytes of a piece that fits one TLS record with the head of its frame. Every peer takes frames of this size."""
SEALING = 512
"""Bytes for which OpenSSL has room beyond the plain text: more than any cipher adds to a record."""
TAKES_DATA = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)
"""The states of a stream in which the hub may send a body."""


class DirectFrames:
    """Sends pieces of the response's body of one stream."""

    __slots__ = ("_framed", "_h2_conn", "_noted", "_stream", "_tls", "_transport")

    def __init__(
        self,
        stream: RequestStream,
        h2_conn: HubH2Connection,
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
            size <= LARGEST_FRAME
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
