"""Requests to a Kubernetes API, as far as a reflector needs them: whole answers, and streams of a watch.

The hub's client speaks to the hub's own listener, so that all egress is mitmproxy's; the manager's to the cloud.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from kube.errors import StatusError, parse_status
from kube.http.session import Response, Session
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.codec_base import read_status
from kube.wire.encoding import Encoding

RESPONSE_TIMEOUT = 60.0
"""Seconds to a whole answer: kube-apiserver gives up on a request that is no watch after as many."""
RELAY_TIMEOUT = 75.0
"""Seconds that somebody else's request may take: more than the server's own limit of 60, so that it is the first."""
THREAD_THRESHOLD = 256 * 1024
"""Bytes from which a body is unpacked in a thread: about a millisecond of the event loop's time."""

NETWORK_ERRORS = (OSError, EOFError, zlib.error)
"""How no answer, or half of one, shows."""


class Unreachable(Exception):
    """No answer, or one that broke off: the network's fault or the server's, never the question's."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A whole answer with status 2xx, unpacked."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A whole answer of any status, as it was on the wire."""

    status: int
    headers: Mapping[str, str]
    """Found under names in any case; iterating gives repeated ones too."""
    body: bytes


@dataclass(frozen=True, slots=True)
class WatchStream:
    """An open watch: its media type, and its bytes as they come."""

    content_type: str
    chunks: AsyncIterator[bytes]


class Client:
    """Requests to one base URL with one set of headers. Close the session it was given, not the client."""

    def __init__(self, session: Session, base_url: str, headers: Mapping[str, str]) -> None:
        self._session = session
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)

    def with_headers(self, headers: Mapping[str, str]) -> Client:
        """The same client with these headers besides its own."""
        return Client(self._session, self._base_url, {**self._headers, **headers})

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = RESPONSE_TIMEOUT,
    ) -> ApiResponse:
        """One request and its whole answer. StatusError for an answer that is no 2xx, Unreachable for none."""
        headers = {**self._headers, "Accept": accept, "Accept-Encoding": "gzip"}
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._base_url + _target(path, query)
        try:
            async with self._session.open(
                method, url, headers=headers.items(), body=body, timeout=timeout
            ) as response:
                raw = await response.read()
                text = await _unpack(raw, response.headers.get("Content-Encoding", ""))
                if not 200 <= response.status < 300:
                    raise _refusal(response, text)
                return ApiResponse(_media_type(response), text)
        except NETWORK_ERRORS as error:
            raise Unreachable(f"{method} {path}: {_words(error)}") from error

    async def relay(
        self,
        method: str,
        target: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        timeout: float = RELAY_TIMEOUT,
    ) -> RawResponse:
        """Somebody else's request passed on as it is, and its answer, whatever it says. Unreachable for none."""
        own = {name.lower() for name in self._headers}
        sent = [(name, value) for name, value in headers if name.lower() not in own]
        sent += self._headers.items()
        url = self._base_url + target
        try:
            async with self._session.open(
                method, url, headers=sent, body=body or None, timeout=timeout
            ) as response:
                return RawResponse(response.status, response.headers, await response.read())
        except NETWORK_ERRORS as error:
            raise Unreachable(f"{method}: {_words(error)}") from error

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float
    ) -> AsyncIterator[WatchStream]:
        """An open watch, for `timeout` seconds at most. Errors as `request`, also while reading."""
        headers = {**self._headers, "Accept": accept, "Accept-Encoding": "gzip"}
        url = self._base_url + _target(path, query)
        asked = self._session.open("GET", url, headers=headers.items(), body=None, timeout=timeout)
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(asked)
            except NETWORK_ERRORS as error:
                raise Unreachable(f"watch {path}: {_words(error)}") from error
            packed = response.headers.get("Content-Encoding", "")
            if response.status != 200:
                raise _refusal(response, await _read_refusal(path, response, packed))
            chunks = response.chunks()
            yield WatchStream(
                _media_type(response), _read(path, _gunzip(chunks) if packed == "gzip" else chunks)
            )


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def _media_type(response: Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip()


def _refusal(response: Response, body: bytes) -> StatusError:
    """The server's own Status, in whichever encoding the answer was asked for."""
    if _media_type(response) == Encoding.PROTOBUF:
        try:
            api_version, kind, raw = codec_for(Encoding.PROTOBUF).decode_single(body)
            if kind == "Status":
                return read_status(decode_object(Encoding.PROTOBUF, api_version, kind, raw).fields)
        except ValueError:
            pass
    return parse_status(body, response.status)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _read(path: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream's own errors are the network's; those of who reads it are not."""
    try:
        async for chunk in chunks:
            yield chunk
    except NETWORK_ERRORS as error:
        raise Unreachable(f"watch {path}: {_words(error)}") from error


async def _read_refusal(path: str, response: Response, packed: str) -> bytes:
    try:
        return await _unpack(await response.read(), packed)
    except NETWORK_ERRORS as error:
        raise Unreachable(f"watch {path}: {_words(error)}") from error


async def _unpack(body: bytes, encoding: str) -> bytes:
    if encoding != "gzip":
        return body
    if not body:
        raise EOFError("the packed body is empty")
    if len(body) < THREAD_THRESHOLD // 8:
        return gzip.decompress(body)
    return await asyncio.to_thread(gzip.decompress, body)


async def _gunzip(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Unpack a watch: since Kubernetes 1.37 one gzip member follows another, one for each flush of the server."""
    unpacker = zlib.decompressobj(31)
    async for chunk in chunks:
        rest = chunk
        while rest:
            text = unpacker.decompress(rest)
            if text:
                yield text
            rest = unpacker.unused_data
            if unpacker.eof:
                unpacker = zlib.decompressobj(31)
