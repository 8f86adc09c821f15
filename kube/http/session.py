"""The interface of an HTTP session, for either version: a request, and its response as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

CONNECT_TIMEOUT = 10.0
"""Seconds to open a connection, as kubelet sets client-go's dialer."""


class BodyTooLarge(OSError):
    """A response has a longer body than its reader takes."""


class Response(Protocol):
    """A response whose body is not read yet. Reading raises OSError when the body breaks off."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Found under names in any case; iterating gives repeated ones too."""
        ...

    async def read(self, limit: int) -> bytes:
        """The complete body, as it was on the wire. BodyTooLarge as soon as it has more than `limit` bytes."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they come."""
        ...


async def read_body(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """All chunks together. BodyTooLarge as soon as they have more than `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"a response is over the limit of {limit} bytes")
        pieces.append(chunk)
    return b"".join(pieces)


class Session(Protocol):
    """Sends requests over connections that it keeps."""

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        timeout: float,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request with these headers, and with those that HTTP itself needs.

        A URL that begins with its path is for a server that the session chooses.

        The session does not follow redirects, which would take the headers, secrets among them, to another host.
        `timeout` is in seconds, from now to the end of the response. OSError (TimeoutError is one) where no response
        comes in time. StatusError 400 for a header that cannot be sent as it is.
        """
        ...
