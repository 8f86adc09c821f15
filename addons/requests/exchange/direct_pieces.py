"""Sends a piece of a streamed answer to its client without mitmproxy's layers, in the form that these would give it.

An event of a watch costs a leader what is done for each of a hundred followers. mitmproxy's layers and h2 make the same
bytes by four generators, six objects and two state machines.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from h2.stream import H2Stream, StreamState
from OpenSSL import SSL

TLS_RECORD = 16 * 1024
"""Bytes that OpenSSL gets at once: the most of one record. A connection keeps a buffer for the largest that it was
given."""
LARGEST_FRAME = TLS_RECORD - 9
"""Bytes of a frame of HTTP/2 that fits one TLS record with its head. Every peer takes frames of this size."""
SEALING = 512
"""Bytes for which OpenSSL has room beyond the plain text: more than any cipher adds to a record."""
TAKES_DATA = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)
"""The states of a stream in which the hub may send a body."""


class PieceStream(Protocol):
    """The stream of an answer that is streamed."""

    @property
    def stream_id(self) -> int:
        """Its number."""

    @property
    def is_streaming(self) -> bool:
        """Whether pieces of the body may go now."""

    @property
    def is_chunked(self) -> bool:
        """Whether the head has said that the body comes in chunks."""

    def changed(self, piece: bytes) -> bytes:
        """What the addons make of a piece."""


class FramedConnection(Protocol):
    """A client's connection of HTTP/2, as h2 has it."""

    outbound_flow_control_window: int
    _data_to_send: bytearray

    @property
    def streams(self) -> Mapping[int, H2Stream]: ...

    def unread_on(self, stream: int) -> int:
        """Bytes that wait for the client's window on a stream."""


class DirectPieces(ABC):
    """Sends pieces of the response's body of one stream."""

    def __init__(
        self,
        stream: PieceStream,
        tls: SSL.Connection | None,
        transport: asyncio.WriteTransport,
        noted: Callable[[], None],
    ) -> None:
        """`noted` is called at each piece that goes."""
        self._stream = stream
        self._tls = tls
        self._transport = transport
        self._noted = noted

    def send(self, data: bytes) -> bool:
        """Send a piece; False where the client has no room for it, or has left. Nothing has been sent then.

        What one turn of the loop wrote for this client is with the socket: only call this in a turn of its own.
        """
        if self._transport.is_closing() or self._transport.get_write_buffer_size():
            return False
        if not self._stream.is_streaming or not self._has_window(len(data)):
            return False
        plain = self._framed(self._stream.changed(data))
        self._noted()
        self._transport.write(plain if self._tls is None else seal(self._tls, plain))
        return True

    @abstractmethod
    def _has_window(self, size: int) -> bool:
        """Whether so many bytes can go now, and nothing waits before them."""

    @abstractmethod
    def _framed(self, data: bytes) -> bytes:
        """A piece as its version of HTTP has it."""


class Http1Pieces(DirectPieces):
    """Sends chunks, or a body that ends with the connection."""

    def _has_window(self, size: int) -> bool:
        return True

    def _framed(self, data: bytes) -> bytes:
        if not data or not self._stream.is_chunked:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)


class Http2Pieces(DirectPieces):
    """Sends frames, each in one TLS record."""

    def __init__(
        self,
        stream: PieceStream,
        tls: SSL.Connection | None,
        transport: asyncio.WriteTransport,
        noted: Callable[[], None],
        h2_conn: FramedConnection,
    ) -> None:
        super().__init__(stream, tls, transport, noted)
        self._h2_conn = h2_conn
        self._framing: H2Stream = h2_conn.streams[stream.stream_id]

    def _has_window(self, size: int) -> bool:
        h2_conn, framing = self._h2_conn, self._framing
        return (
            size <= framing.outbound_flow_control_window
            and size <= h2_conn.outbound_flow_control_window
            and framing.state_machine.state in TAKES_DATA
            and not h2_conn.unread_on(framing.stream_id)
            and not h2_conn._data_to_send
        )

    def _framed(self, data: bytes) -> bytes:
        """DATA frames as h2 makes them (RFC 9113, 6.1). They change nothing of an open stream but the windows."""
        self._framing.outbound_flow_control_window -= len(data)
        self._h2_conn.outbound_flow_control_window -= len(data)
        number = self._framing.stream_id.to_bytes(4)
        pieces = (data[at : at + LARGEST_FRAME] for at in range(0, len(data), LARGEST_FRAME))
        return b"".join(b"%b\x00\x00%b%b" % (len(piece).to_bytes(3), number, piece) for piece in pieces)


def seal(tls: SSL.Connection, plain: bytes) -> bytes:
    """Records of TLS. Empty when the client has ended its TLS: the end of its connection follows."""
    sealed = bytearray()
    for at in range(0, len(plain), TLS_RECORD):
        record = plain[at : at + TLS_RECORD]
        try:
            tls.sendall(record)
        except (SSL.ZeroReturnError, SSL.SysCallError):
            return b""
        most = len(record) + SEALING
        sealed += (read := tls.bio_read(most))
        while len(read) == most:  # a shorter read is the last one
            sealed += (read := tls.bio_read(most))
    return bytes(sealed)
