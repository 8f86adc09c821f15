"""The receiver of the response to one request, as it comes."""

from __future__ import annotations

from kube.bounds import reached
from kube.http.transport.request_fields import HeaderFields

SENDS = 5
"""How often a request is sent that the peer does not process. kube-apiserver closes one connection after another
(GOAWAY) when they bring it bad tokens. The limit ends the attempts at a peer that processes nothing."""
FIRST_WINDOW = 2**16 - 1
"""Bytes that a server may send of a response before any of them is taken."""
MAX_UNTAKEN = 1024 * 1024
"""Bytes of one response that wait for its reader.

The peer stops there: a packed watch comes faster than its reader applies its unpacked events.
"""


class NotProcessed(ConnectionResetError):
    """The peer did not process the request (RFC 9113, 8.7): it can be sent again, whatever its method."""


class ResponseSink:
    """Takes a response. The connection calls all methods while it handles received bytes."""

    sends = 1
    """How often the request was sent."""
    stream = 0
    """The number that the connection gave the request."""
    status = 0
    """0 until status and headers have come."""
    is_framed = True
    """Whether the body has an explicit end.

    Where only the connection's end ends it, a truncated body looks complete (RFC 9112, 6.3).
    """
    has_ended = False
    error: ConnectionResetError | None = None
    """Why the response broke off."""
    is_wanted = True
    """Whether the body is read.

    Over HTTP/2 a success that is not read is over with its head: the server gets no window, and the next frame resets
    the stream.
    """
    first_window = FIRST_WINDOW
    """Bytes that may come before any is taken."""

    @property
    def most_untaken(self) -> int:
        """Bytes that may wait to be taken, once the first ones were."""
        return MAX_UNTAKEN

    def begin(self, status: int, fields: HeaderFields) -> None:
        """Take status and headers."""
        self.status = status

    def add(self, piece: bytes, size: int) -> None:
        """Take a piece that has `size` bytes of the stream's window, with its padding."""

    def trail(self, fields: HeaderFields) -> None:
        """Take the fields behind a body."""

    def end(self) -> None:
        self.has_ended = True

    def fail(self, error: ConnectionResetError) -> None:
        """Break the response off, unless it is complete."""
        if not self.has_ended and self.error is None:
            self.error = error

    def begin_anew(self) -> bool:
        """Drop the peer that did not process the request; return whether the request may be sent again from its start.

        Senders of requests ask here alone: a request that the peer may have processed is never sent twice.
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
        """All received bytes are delivered; the peer may have room for more of the request's body."""
