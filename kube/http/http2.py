"""HTTP/2 without TLS, which the hub uses towards its own listener: all requests of the hub share a connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from kube.bounds import reached
from kube.errors import StatusError, bad_request
from kube.http.http2_connection import Connection, HeaderFields, Http2Response, NotProcessed, connect
from kube.http.session import CONNECT_TIMEOUT

SENDS = 5
"""How often a request is sent that the peer does not process. kube-apiserver closes one connection after another
(GOAWAY) when they bring it bad tokens. The limit ends the attempts at a peer that processes nothing."""
NOT_SENT = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"),
        *("content-length", "host"),
    }
)
"""Headers that HTTP/2 replaces (RFC 9113, 8.2.2); `content-length` becomes that of the body."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name (RFC 9110, 5.6.2)."""
_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
"""A header's value (RFC 9110, 5.5): no control character but tabs, no blank at either end."""
_PATH = re.compile(r"[^\x00-\x20\x7f]+")


class Http2Session:
    """A `kube.http.session.Session`. It opens connections as they are needed, and keeps them."""

    def __init__(self) -> None:
        self._connections: dict[str, list[Connection]] = {}
        self._opening = asyncio.Lock()

    def close(self) -> None:
        """Close all connections. Responses under way break off."""
        for connections in self._connections.values():
            for each in connections:
                each.close()
        self._connections.clear()

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Http2Response]:
        """See `kube.http.session.Session.open`; the URL's scheme is http."""
        deadline = asyncio.get_running_loop().time() + timeout
        base, path = _parts(url)
        fields = request_fields(method, base, path, headers, body)
        connection, response = await self._send(base, fields, body or b"", deadline)
        try:
            yield response
        finally:
            connection.release(response)

    async def _send(
        self, base: str, fields: HeaderFields, body: bytes, deadline: float
    ) -> tuple[Connection, Http2Response]:
        """A response that has begun. A request that a peer did not process goes out again on another connection."""
        for sent in range(1, SENDS + 1):
            async with asyncio.timeout_at(deadline):
                connection = await self._connection(base)
            response = connection.send(fields, body, deadline)
            try:
                await response.begun()
            except NotProcessed:
                connection.release(response)
                if sent == SENDS:
                    reached("sends of a request")
                    raise
            except BaseException as error:
                if isinstance(error, TimeoutError):
                    # The peer may be stuck with this connection: only a new one can tell.
                    connection.retire()
                connection.release(response)
                raise
            else:
                return connection, response
        raise AssertionError("unreachable")

    async def _connection(self, base: str) -> Connection:
        """An open connection with room for a stream, or a new one."""
        async with self._opening:
            usable = [each for each in self._connections.get(base, ()) if each.is_open]
            self._connections[base] = usable
            for each in usable:
                if each.has_room:
                    return each
            host, _, port = base.rpartition(":")
            async with asyncio.timeout(CONNECT_TIMEOUT):
                made = await connect(host.strip("[]"), int(port))
            usable.append(made)
            return made


def request_fields(
    method: str, base: str, path: str, headers: Iterable[tuple[str, str]], body: bytes | None
) -> HeaderFields:
    """The fields of a request. Values go out byte for byte; StatusError 400 for a value that HTTP/2 cannot carry."""
    if not _TOKEN.fullmatch(method) or not _PATH.fullmatch(path):
        raise bad_request("the request line cannot be sent")
    sent = [(":method", method), (":scheme", "http"), (":authority", base), (":path", path)]
    fields = [(name.encode(), value.encode(errors="surrogateescape")) for name, value in sent]
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise bad_request("the name of a header cannot be sent")
        lower = name.lower()
        if lower not in NOT_SENT:
            fields.append((lower.encode(), _value(name, value)))
    if body is not None:
        fields.append((b"content-length", str(len(body)).encode()))
    return fields


def _value(name: str, value: str) -> bytes:
    try:
        raw = value.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise _unsendable(name) from None
    if not _VALUE.fullmatch(raw):
        raise _unsendable(name)
    return raw


def _unsendable(name: str) -> StatusError:
    """The refusal of a header. It does not quote the value, which may be a secret."""
    return bad_request(f"the value of the header {name} cannot be sent")


def _parts(url: str) -> tuple[str, str]:
    """Host with port, and path with query."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.port is None:
        raise ValueError(f"{url} is no http:// URL with a port")
    return parts.netloc, url[len("http://") + len(parts.netloc) :] or "/"
