"""The interface of an HTTP session: a request, and its response as it arrives. For HTTP/1.1 and HTTP/2."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

CONNECT_TIMEOUT = 10.0
"""Seconds to open a connection, as in kubelet's dialer."""


class BodyTooLarge(OSError):
    """A response's body is longer than its reader accepts."""


class Response(Protocol):
    """A response whose body is not read yet. Reading raises OSError if the body is truncated."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Look-ups ignore case; iterating yields repeated headers as well."""
        ...

    async def read(self, limit: int) -> bytes:
        """Read the complete body, undecoded. BodyTooLarge as soon as it exceeds `limit` bytes."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces as they arrive."""
        ...


async def read_body(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """Join all chunks. BodyTooLarge as soon as they exceed `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"a response is over the limit of {limit} bytes")
        pieces.append(chunk)
    return b"".join(pieces)


class Session(Protocol):
    """Sends requests over persistent connections."""

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        timeout: float,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request with these headers, and those that HTTP itself needs.

        For a URL that is only a path, the session chooses the server.

        The session does not follow redirects, which could send the headers, secrets among them, to another host.
        `timeout` is in seconds, from now to the end of the response. OSError (such as TimeoutError) if no response
        comes in time. StatusError 400 for a header that is not valid in HTTP.
        """
        ...
