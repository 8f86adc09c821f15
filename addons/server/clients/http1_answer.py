"""Frames an HTTP/1.1 answer (RFC 9112): its head, and a body delimited by a length, by chunks, or by the connection's
close.

h11 is used for requests only. For an answer it checks and copies each field several times: 10 % of a relayed request's
cost.
"""

from __future__ import annotations

from mitmproxy.net.http import status_codes

from addons.server.limits.request_head import connection_options, fields_fault_of
from addons.server.messages import WITHOUT_BODY
from addons.server.request import AnswerFields

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class AnswerFraming:
    """Encodes one answer. ValueError for a head that cannot be sent, or a body that does not match its length."""

    def __init__(self, *, is_head: bool, is_http10: bool, is_last: bool) -> None:
        self._is_head, self._is_http10 = is_head, is_http10
        self.is_last = is_last
        """Whether the connection closes after the answer."""
        self.has_ended = False
        """Whether the answer is complete."""
        self._is_chunked = False
        self._left: int | None = None
        """Bytes of the body still to be sent; None if its length is unknown."""

    def head(self, status: int, fields: AnswerFields, size: int | None = None) -> bytes:
        """Encode the head. `size` is the body's length, if it is known and no field gives it."""
        if (fault := fields_fault_of(fields)) is not None:
            raise ValueError(f"the response's head is invalid: {fault.message}")
        if not 200 <= status <= 999:
            raise ValueError(f"{status} is not a response status")
        sent, length, options = [], b"", set[bytes]()
        for name, value in fields:
            lower = name.lower()
            if lower == b"connection":
                options |= connection_options(value)
            elif lower != b"content-length":
                if lower != b"transfer-encoding":
                    sent.append((name, value))
            elif not length:
                sent.append((name, value))
                length = value
            elif length != value:
                raise ValueError("the response has two lengths")
        if size is not None and not length and status not in WITHOUT_BODY:
            length = b"%d" % size
            sent.append((b"Content-Length", length))
        if status in WITHOUT_BODY:
            self._left = 0
        elif length:
            self._left = 0 if self._is_head else _number(length)
        elif not self._is_http10:
            self._is_chunked = not self._is_head
            sent.append((b"Transfer-Encoding", b"chunked"))
        else:
            self.is_last |= not self._is_head
        self.is_last |= b"close" in options
        if self.is_last:
            options = options - {b"keep-alive"} | {b"close"}
        if options:
            sent.append((b"Connection", b", ".join(sorted(options))))
        return _head(status, sent)

    def switch(self, status: int, fields: AnswerFields) -> bytes:
        """Encode the head of a 101, after which both sides speak another protocol."""
        self.is_last = True
        return _head(status, fields)

    def piece(self, data: bytes) -> bytes:
        """Encode a piece of the body. An empty piece does not end the body."""
        if self._is_chunked:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ValueError("the response's body is longer than its Content-Length")
        return data

    def end(self) -> bytes:
        if self._left:
            raise ValueError("the response's body is shorter than its Content-Length")
        self.has_ended = True
        return b"0\r\n\r\n" if self._is_chunked else b""


def _head(status: int, fields: AnswerFields) -> bytes:
    reason = status_codes.RESPONSES.get(status, "").encode()
    lines = [b"HTTP/1.1 %d %b" % (status, reason), *map(b": ".join, fields), b"\r\n"]
    return b"\r\n".join(lines)


def _number(length: bytes) -> int:
    if not length.isdigit():
        raise ValueError("the response's Content-Length is not a number")
    return int(length)
