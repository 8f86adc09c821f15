"""Writes frames on one HTTP/2 connection, within the peer's flow-control windows and round-robin among requests.

A request waits here while the peer reads slowly. A cancelled request is never sent, and a short one does not wait for
the long bodies of others.
"""

from __future__ import annotations

import asyncio

from kube.http.transport.hpack_encoder import HpackEncoder
from kube.http.transport.http2_framing import FrameFlag, FrameKind, frame, head_frames, packed
from kube.http.transport.http2_stream import RequestedStream
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_sink import ResponseSink

WRITE_BATCH = 64 * 1024
"""Bytes of frames that are made before the writer checks again whether the transport is paused."""
MAX_UNWRITTEN = 1024 * 1024
"""The most bytes buffered for a peer that does not read. Requests pause long before; answers to the peer's pings do
not."""


class FrameWriter:
    """Builds the frames that one side of a connection sends. `flush` writes what the other methods have queued."""

    def __init__(self, unsettled: dict[ResponseSink, None]) -> None:
        """Set `unsettled`, to which the writer adds each response whose request body has made progress."""
        self.transport: asyncio.Transport | None = None
        self.is_paused = False
        """True while the transport is paused, because the peer reads too slowly."""
        self.encoder = HpackEncoder()
        self.window = 2**16 - 1
        """The connection's flow-control window in bytes, for all bodies together."""
        self.first_window = 2**16 - 1
        """The initial window of each stream. If the peer changes it, open streams change, too."""
        self.largest_frame = 2**14
        self._unsettled = unsettled
        self._heads: dict[RequestedStream, HeaderFields] = {}
        """Requests whose head is not sent yet."""
        self._bodies: dict[RequestedStream, None] = {}
        """Requests with unsent body bytes, or an unsent end, in the order of sending."""
        self._out: list[bytes] = []
        self._size = 0

    @property
    def is_flooded(self) -> bool:
        """True if the transport buffers more than MAX_UNWRITTEN."""
        return (
            self.is_paused
            and self.transport is not None
            and self.transport.get_write_buffer_size() > MAX_UNWRITTEN
        )

    def begin(self, stream: RequestedStream, fields: HeaderFields) -> None:
        """Queue a request, with the part of its body that is there."""
        self._heads[stream] = fields

    def send_more(self, stream: RequestedStream) -> None:
        """Queue more of a request's body, or its end."""
        if stream not in self._heads:
            self._bodies[stream] = None

    def drop(self, stream: RequestedStream) -> bool:
        """Cancel the unsent part of a request; return True if some of it was sent."""
        self._bodies.pop(stream, None)
        return self._heads.pop(stream, None) is None

    def frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Queue a frame that belongs to no request."""
        self._add(frame(kind, flags, number, payload))

    def send_window_update(self, number: int, more: int) -> None:
        """Increase the peer's window by `more` bytes, on a stream or (0) on the connection."""
        self.frame(FrameKind.WINDOW_UPDATE, 0, number, packed(more))

    def flush(self) -> None:
        if not (self._heads or self._bodies or self._out):
            return
        if self.transport is None or self.transport.is_closing():
            return
        while self._heads and not self.is_paused:
            stream = next(iter(self._heads))
            self._send_head(stream, self._heads.pop(stream))
        self._send_bodies()
        self._write()

    def _send_head(self, stream: RequestedStream, fields: HeaderFields) -> None:
        flags = FrameFlag.END_STREAM if stream.is_sent else 0
        for head_frame in head_frames(stream.number, self.encoder.encode(fields), flags, self.largest_frame):
            self._add(head_frame)
        if more := stream.open_window():
            self.send_window_update(stream.number, more)
        if stream.to_send:
            self._bodies[stream] = None

    def _send_bodies(self) -> None:
        """Send one frame of each body, round-robin. The connection's window may be smaller than a stream's."""
        blocked = 0
        while blocked < len(self._bodies) and not self.is_paused:
            stream = next(iter(self._bodies))
            del self._bodies[stream]
            made = stream.next_frame(min(self.window, self.largest_frame), self.first_window)
            if made is not None:
                size, data = made
                self.window -= size
                self._add(data)
                self._unsettled[stream.response] = None
                blocked = 0
            if stream.to_send:
                self._bodies[stream] = None
                blocked += made is None

    def _add(self, made: bytes) -> None:
        self._out.append(made)
        self._size += len(made)
        if self._size >= WRITE_BATCH:
            self._write()

    def _write(self) -> None:
        if self._out and self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
        self._out.clear()
        self._size = 0
