"""What `kube.http.client` needs of HTTP, whichever version: a request, and its answer as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

CONNECT_TIMEOUT = 10.0
"""Seconds to a connection, as client-go's dialer is used by kubelet."""


class Response(Protocol):
    """An answer whose body is not read yet. Whatever breaks it off while it is read is an OSError."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Found under names in any case; iterating gives repeated ones too."""
        ...

    async def read(self) -> bytes:
        """The whole body, as it was on the wire."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they come."""
        ...


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
        """Send a request with these headers and no others but what HTTP needs.

        Redirects are not followed: they would take the headers, secrets among them, to another host. `timeout` is in
        seconds, from now to the answer's end. OSError (TimeoutError is one) where there is no answer in time.
        """
        ...
