"""The interface by which a connection delivers one response, piece by piece."""

from __future__ import annotations

from kube.bounds import reached
from kube.http.transport.request_fields import HeaderFields

SENDS = 5
"""The most attempts to send a request that peers do not process. kube-apiserver closes connections (GOAWAY) that bring
bad tokens. The limit ends the attempts at a peer that processes nothing."""
FIRST_WINDOW = 2**16 - 1
"""Bytes that a server may send of a response before the reader consumes any."""
MAX_UNREAD = 1024 * 1024
"""The most unread bytes of one response.

The peer pauses there: a compressed watch arrives faster than its reader applies the decompressed events.
"""


class NotProcessed(ConnectionResetError):
    """The peer did not process the request (RFC 9113, 8.7), so it can be sent again, whatever its method."""


class ResponseSink:
    """Receives a response. The connection calls all methods while it handles received bytes."""

    sends = 1
    """The number of attempts to send the request."""
    stream = 0
    """The stream number of the request on its connection."""
    status = 0
    """The status; 0 until the head has arrived."""
    is_framed = True
    """True if the body has an explicit end.

    A body that ends with the connection looks complete even if truncated (RFC 9112, 6.3).
    """
    has_ended = False
    error: ConnectionResetError | None = None
    """The reason why the response was aborted."""
    is_wanted = True
    """True if the caller reads the body.

    Over HTTP/2, a successful response that is not read ends with its head: the server gets no window, and the next
    frame resets the stream.
    """
    first_window = FIRST_WINDOW
    """Bytes that the server may send before the reader consumes any."""

    @property
    def max_unread(self) -> int:
        """The most unread bytes, after the reader has begun to consume."""
        return MAX_UNREAD

    def begin(self, status: int, fields: HeaderFields) -> None:
        """Receive status and headers."""
        self.status = status

    def add(self, piece: bytes, size: int) -> None:
        """Receive a piece of the body that used `size` bytes of the stream's window, padding included."""

    def trail(self, fields: HeaderFields) -> None:
        """Receive the trailers."""

    def end(self) -> None:
        self.has_ended = True

    def fail(self, error: ConnectionResetError) -> None:
        """Abort the response, unless it is complete."""
        if not self.has_ended and self.error is None:
            self.error = error

    def begin_anew(self) -> bool:
        """Detach from a peer that did not process the request; return True if the request may be sent again.

        The only place that decides this: a request that the peer may have processed is never sent twice.
        """
        if self.status or not isinstance(self.error, NotProcessed):
            return False
        if self.sends == SENDS:
            reached("sends of a request")
            return False
        self.sends += 1
        self.error = None
        return True

    def settle(self) -> None:
        """Called after all received bytes are delivered, when the peer may accept more of the request's body."""
