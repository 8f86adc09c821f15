"""Answers as the origin gives them: one object, a Status, or a body whose pieces go straight to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web
from aiohttp.http import HttpVersion11

from addons.requests.client_request import ClientStream
from kube.errors import StatusError
from kube.wire.encoded_objects import Encoded

HEADERS = {"Cache-Control": "no-cache, private"}
"""On every answer that the hub makes itself, as on kube-apiserver's."""


def object_response(obj: Encoded, status: int = 200) -> web.Response:
    """An object as the whole answer."""
    headers = {**HEADERS, "Content-Type": obj.codec.content_type}
    return web.Response(status=status, body=obj.body(), headers=headers)


def status_response(error: StatusError) -> web.Response:
    """A Status as the whole answer."""
    headers = dict(HEADERS)
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return web.Response(
        status=error.code, body=error.to_json(), content_type="application/json", headers=headers
    )


class AnswerBody:
    """One answer whose length nobody knows. `response` is what the origin's server has to return in the end."""

    def __init__(self, request: web.BaseRequest, stream: ClientStream | None = None) -> None:
        """`stream` is the client's side of the request; without one the body goes the way of the head."""
        self._request = request
        self._stream = stream
        self.response = web.StreamResponse()
        if request.version >= HttpVersion11:  # a client of HTTP/1.0 knows the end by that of the connection
            self.response.enable_chunked_encoding()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Send the head."""
        self.response.headers.update(headers)
        await self.response.prepare(self._request)
        if self._stream is not None and not await self._stream.begun():
            self._stream = None

    async def write(self, data: bytes) -> None:
        """Send a piece, and wait while the client does not read. ConnectionError when the client has left."""
        if self._stream is not None:
            await self._stream.write(data)
        else:
            await self.response.write(data)

    @property
    def outlet(self) -> Callable[[bytes], bool] | None:
        """`ClientStream.outlet`; None where the body goes the way of the head."""
        return self._stream.outlet() if self._stream is not None else None

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        """Send pieces that are made as they are taken, and let others work in between."""
        for number, piece in enumerate(pieces):
            if number:
                # A client that reads as fast as the hub writes never makes it wait.
                await asyncio.sleep(0)
            await self.write(piece)
