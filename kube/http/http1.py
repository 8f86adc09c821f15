"""HTTP/1.1 by aiohttp: the manager's sessions to the cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from kube.http.session import CONNECT_TIMEOUT, read_body

ADDED_BY_AIOHTTP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Http1Session:
    """A `kube.http.session.Session` over an aiohttp session, which must not decompress bodies. `close` closes it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Http1Response]:
        """See `kube.http.session.Session.open`."""
        exchange = self._session.request(
            method,
            URL(url, encoded=True),
            headers=CIMultiDict(headers),
            data=body,
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT),
            allow_redirects=False,
            skip_auto_headers=ADDED_BY_AIOHTTP,
        )
        try:
            response = await exchange
        except aiohttp.ClientError as error:
            raise _lost(error) from error
        async with response:
            yield Http1Response(response)


class Http1Response:
    """A `kube.http.session.Response`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self, limit: int) -> bytes:
        return await read_body(self.chunks(), limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        chunks = self._response.content.iter_any()
        while True:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except aiohttp.ClientError as error:
                raise _lost(error) from error
            yield chunk
            del chunk  # The next chunk may come in an hour.


def _lost(error: aiohttp.ClientError) -> ConnectionError:
    return ConnectionError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
