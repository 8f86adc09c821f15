"""HTTP without TLS over the hub's own connections, in either version."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar
from urllib.parse import urlsplit

from kube.http.transport.connection_pool import ConnectionPool
from kube.http.transport.http1_connection import Http1Connection
from kube.http.transport.http2_connection import Http2Connection
from kube.http.transport.request_fields import request_fields
from kube.http.transport.streamed_response import StreamedResponse

LATER = 10.0
"""Seconds, more than any test takes."""


class PooledSession(ABC):
    """A `kube.http.session.Session` whose connections a subclass opens."""

    scheme: ClassVar[str]

    def __init__(self) -> None:
        self._connections = ConnectionPool(self._connect)

    def close(self) -> None:
        self._connections.close()

    def get(self, url: str) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send a GET for a URL."""
        return self.open("GET", url, headers=(), body=None, timeout=LATER)

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[StreamedResponse]:
        deadline = asyncio.get_running_loop().time() + timeout
        base = urlsplit(url).netloc
        fields = request_fields(method, self.scheme, base, url.partition(base)[2] or "/", headers, body)
        async with self._connections.open(base, fields, body or b"", deadline) as response:
            yield response

    @abstractmethod
    async def _connect(self, base: str) -> Http2Connection | Http1Connection:
        """Open a connection to a host and port."""


class CleartextSession(PooledSession):
    """A session for http:// URLs with a port."""

    scheme = "http"

    def __init__(self, kind: type[Http2Connection] | type[Http1Connection] = Http2Connection) -> None:
        super().__init__()
        self._kind = kind

    async def _connect(self, base: str) -> Http2Connection | Http1Connection:
        host, _, port = base.rpartition(":")
        made = self._kind()
        await asyncio.get_running_loop().create_connection(lambda: made, host, int(port))
        return made
