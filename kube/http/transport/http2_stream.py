"""One request on a connection of HTTP/2 and its response: what each side may send of a body, and has sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kube.http.transport.http2_framing import EndCode, FrameFlag, FrameKind, PeerError, frame
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_head import parse_head, promised_length
from kube.http.transport.response_sink import FIRST_WINDOW, ResponseSink


class RequestedStream:
    """A stream that a request has opened."""

    __slots__ = (
        *("_has_body", "_left", "_granted", "_promised", "_unsent", "_untaken"),
        *("is_whole", "number", "response", "to_send", "window"),
    )

    def __init__(self, number: int, response: ResponseSink, window: int, *, has_body: bool) -> None:
        """`window` is what the peer has room for; a response `has_body` unless it is to HEAD."""
        self.number = number
        self.response = response
        self.window = window
        """Bytes of the request's body that the peer has room for."""
        self._unsent: deque[bytes] = deque()
        self.to_send = 0
        """Bytes of the request's body that wait for room."""
        self.is_whole = False
        """Nothing of the request comes after those."""
        self._has_body = has_body
        self._left = self._granted = FIRST_WINDOW
        """Bytes that the peer may still send, and those that it had when it was last told."""
        self._untaken = 0
        self._promised: int | None = None
        """Bytes of the response's body that are still to come; None where its head does not say it."""

    @property
    def is_sent(self) -> bool:
        """Whether all of the request has gone."""
        return self.is_whole and not self.to_send

    def add(self, data: bytes, *, is_last: bool) -> None:
        """Take more of the request's body."""
        if data:
            self._unsent.append(data)
            self.to_send += len(data)
        self.is_whole = is_last

    def frames(self, room: int, largest: int) -> Iterator[tuple[int, bytes]]:
        """As much of the body as there is room for, in frames of `largest` bytes, each with the room that it takes."""
        if not self._unsent and self.is_whole:
            yield 0, frame(FrameKind.DATA, FrameFlag.END_STREAM, self.number, b"")
        while self._unsent:
            piece = self._unsent[0]
            # A window is below zero where the peer has made it smaller meanwhile (RFC 9113, 6.9.2).
            size = min(len(piece), self.window, room, largest)
            if size <= 0:
                return
            if size < len(piece):
                self._unsent[0] = piece[size:]
            else:
                self._unsent.popleft()
            self.to_send -= size
            self.window -= size
            room -= size
            is_last = self.is_whole and not self._unsent
            yield (
                size,
                frame(FrameKind.DATA, FrameFlag.END_STREAM if is_last else 0, self.number, piece[:size]),
            )

    def widen(self, more: int) -> int:
        """Let the peer send so much more of the response; `more` itself."""
        self._left += more
        self._granted = self._left
        return more

    def took(self, size: int) -> int:
        """Note that so many bytes were taken; how many more the peer may be told to send, 0 where it has enough."""
        self._untaken -= size
        if self._left > self._granted // 2:
            return 0
        more = self.response.most_untaken - self._untaken - self._left
        return self.widen(more) if more > 0 else 0

    def came(self, size: int) -> None:
        """Note what came of the window; PeerError for more than there was room for."""
        self._left -= size
        self._untaken += size
        if self._left < 0:
            raise PeerError("more of a body than there is room for", EndCode.FLOW_CONTROL_ERROR)

    def take_data(self, piece: bytes, size: int, *, has_ended: bool) -> None:
        """Hand a piece on that took `size` bytes of the window; ValueError for one that may not come."""
        if not self.response.status:
            raise ValueError("a body came before the head")
        if self._promised is not None:
            self._promised -= len(piece)
            if self._promised < 0 or (has_ended and self._promised):
                raise ValueError("the body has not the length that the head says")
        if size:
            self.response.add(piece, size)
        if has_ended:
            self.response.end()

    def take_head(self, fields: HeaderFields, *, has_ended: bool) -> None:
        """Hand on a head, or the fields behind a body; ValueError for one that is malformed."""
        is_trailer = bool(self.response.status)
        status, headers = parse_head(fields, is_trailer=is_trailer)
        if is_trailer:
            if not has_ended:
                raise ValueError("the answer has a second head")
            self.response.trail(headers)
        elif status >= 200:
            self._promised = promised_length(status, headers) if self._has_body else 0
            self.response.begin(status, headers)
        elif has_ended:
            raise ValueError("the answer has no head but an interim one")
        if has_ended:
            if self._promised:
                raise ValueError("the body has not the length that the head says")
            self.response.end()
