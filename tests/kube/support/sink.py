"""Connections whose peer is a test."""

from __future__ import annotations

import asyncio

from kube.http.transport.http1_connection import Http1Connection
from kube.http.transport.http2_connection import Http2Connection
from kube.http.transport.request_fields import HeaderFields, request_fields


class Sink(asyncio.Transport):
    """A transport that stores the written bytes and receives nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self._written = b""

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken, self._written = self._written, b""
        return taken

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return len(self._written)

    def is_closing(self) -> bool:
        return self.is_gone

    def close(self) -> None:
        self.is_gone = True

    abort = close


def connected[C: (Http1Connection, Http2Connection)](kind: type[C]) -> tuple[C, Sink]:
    made, sink = kind(), Sink()
    made.connection_made(sink)
    return made, sink


def fields(path: str = "/", method: str = "GET") -> HeaderFields:
    return request_fields(method, "http", "a:1", path, (), None)
