"""One request and its response on an HTTP/2 connection, with the flow-control windows of both directions."""

from __future__ import annotations

from kube.http.transport.http2_framing import EndCode, FrameFlag, FrameKind, PeerError, frame
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_head import parse_head, promised_length
from kube.http.transport.response_sink import ResponseSink


class RequestedStream:
    """An HTTP/2 stream that a request has opened."""

    __slots__ = (
        *("_granted", "_has_body", "_left", "_promised", "_unsent", "_untaken"),
        *("has_ended", "is_complete", "number", "response", "window"),
    )

    def __init__(self, number: int, response: ResponseSink, method: bytes) -> None:
        self.number = number
        self.response = response
        self.window = 0
        """The send window in bytes, in addition to the peer's initial window."""
        self._unsent = bytearray()
        """The unsent bytes of the request's body. One buffer, because a client may send its body byte by byte."""
        self.is_complete = False
        """True if the request has no more body after `_unsent`."""
        self._has_body = method != b"HEAD"
        self.has_ended = False
        """True if the peer has ended the response."""
        self._left = self._granted = 0
        """The receive window: the bytes that remain of it, and its size at the last window update."""
        self._untaken = 0
        self._promised: int | None = None
        """Bytes of the response's body still to come, from Content-Length; None if the head has none."""

    @property
    def is_sent(self) -> bool:
        """True if the request is completely sent."""
        return self.is_complete and not self.to_send

    @property
    def has_granted(self) -> bool:
        """True if the peer was ever given a receive window."""
        return self._granted > 0

    @property
    def to_send(self) -> int:
        """The number of unsent bytes of the request's body."""
        return len(self._unsent)

    def add(self, data: bytes, *, is_last: bool) -> None:
        """Append to the request's body."""
        self._unsent += data
        self.is_complete = is_last

    def next_frame(self, connection_window: int, first_window: int) -> tuple[int, bytes] | None:
        """Build the next DATA frame that fits, and return the window that it uses; None if none fits.

        `first_window` is the peer's initial window of each stream.
        """
        # A window is negative if the peer has reduced it meanwhile (RFC 9113, 6.9.2).
        size = max(0, min(self.to_send, first_window + self.window, connection_window))
        if not size and (self.to_send or not self.is_complete):
            return None
        piece = bytes(self._unsent[:size])
        del self._unsent[:size]
        self.window -= size
        return size, frame(FrameKind.DATA, FrameFlag.END_STREAM if self.is_sent else 0, self.number, piece)

    def open_window(self) -> int:
        """The initial receive window in bytes."""
        return self.widen(self.response.first_window) if self.response.is_wanted else 0

    def widen(self, more: int) -> int:
        """Increase the receive window by `more` bytes, and return `more`."""
        self._left += more
        self._granted = self._left
        return more

    def consume(self, size: int) -> int:
        """Count bytes that the reader has consumed; return the window update to send, 0 for none."""
        self._untaken -= size
        if self._left > self._granted // 2:
            return 0
        more = self.response.max_unread - self._untaken - self._left
        return self.widen(more) if more > 0 else 0

    def receive(self, size: int) -> None:
        """Count received bytes; PeerError if they exceed the receive window."""
        self._left -= size
        self._untaken += size
        if self._left < 0:
            raise PeerError("more of a body than the window allows", EndCode.FLOW_CONTROL_ERROR)

    def take_data(self, piece: bytes, size: int, *, has_ended: bool) -> None:
        """Deliver a piece of the body that used `size` bytes of the window; ValueError if it is not allowed here."""
        if not self.response.status:
            raise ValueError("DATA came before HEADERS")
        if self._promised is not None:
            self._promised -= len(piece)
            if self._promised < 0 or (has_ended and self._promised):
                raise ValueError("the body differs from Content-Length")
        if size:
            self.response.add(piece, size)
        if has_ended:
            self._end()

    def take_head(self, fields: HeaderFields, *, has_ended: bool) -> None:
        """Deliver a head or trailers; ValueError if malformed."""
        is_trailer = bool(self.response.status)
        status, headers = parse_head(fields, is_trailer=is_trailer)
        if is_trailer:
            if not has_ended:
                raise ValueError("the response has a second header block")
            self.response.trail(headers)
        elif status >= 200:
            self._promised = promised_length(status, headers) if self._has_body else 0
            self.response.begin(status, headers)
            if status < 300 and not self.has_granted:
                self.response.end()
        elif has_ended:
            raise ValueError("the response has none but an interim header block")
        if has_ended:
            if self._promised:
                raise ValueError("the body differs from Content-Length")
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        self.response.end()
