"""Bounds requests' bodies: the time that a client has for one, and what the chunks of HTTP/1.1 cost.

h11 collects the line before a chunk without end, and mitmproxy passes on each chunk by itself: a line of a gigabyte
took two gigabytes of memory, and chunks of one byte held the event loop for seconds. At a malformed chunk mitmproxy
closes the connection without an answer.
"""

from __future__ import annotations

from typing import Protocol

import h11
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer

MAX_CHUNK_LINE = 4 * 1024
"""Bytes of the line before a chunk, and of all trailers: as many as Go's own server reads of a line."""
CHUNKS_AT_ONCE = 500
"""Chunks of one body that are handled in one go; others go between, where there are more."""
LARGEST_CHUNK = 2**48
"""Bytes that a chunk may say it has: more than any connection carries. Go's own server refuses 2**64 and more."""
CHUNK_LINE_TOO_LONG = "the line before a chunk of the body is too long"
BODY_TIME = 60.0
"""Seconds within which a client has sent the whole body that the hub holds: as long as kube-apiserver takes over a
request (`--request-timeout`)."""


class BodyReader(Protocol):
    """One of h11's."""

    def __call__(self, buf: ReceiveBuffer) -> h11.Data | h11.EndOfMessage | None: ...

    def read_eof(self) -> h11.EndOfMessage: ...


class MalformedBody(Exception):
    """A request's body that is not in chunks as its head says."""


class StrictReader:
    """A body reader of h11's that raises MalformedBody. mitmproxy takes h11's own errors for the client's end."""

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader

    def __call__(self, buf: ReceiveBuffer) -> h11.Data | h11.EndOfMessage | None:
        reader = self._reader
        try:
            event = reader(buf)
        except h11.ProtocolError as error:
            raise MalformedBody(f"the body of the request is malformed: {error}") from error
        if isinstance(reader, ChunkedReader) and reader._bytes_in_chunk > LARGEST_CHUNK:
            raise MalformedBody("the body of the request is malformed: a chunk is too large")
        return event

    def read_eof(self) -> h11.EndOfMessage:
        return self._reader.read_eof()
