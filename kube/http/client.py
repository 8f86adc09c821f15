"""A client of a Kubernetes API: complete responses, and watches.

In the hub, the session is `addons.link`, which chooses the server; in the manager it connects to the cloud.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import orjson

from kube.bounds import reached
from kube.errors import StatusError, parse_status
from kube.http import gzip_bodies, zstd_bodies
from kube.http.gzip_bodies import one_at_a_time, unpack_stream
from kube.http.retry_after import Pauses, bounded, retry_after
from kube.http.session import BodyTooLarge, Response, Session
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.codec_base import read_status
from kube.wire.encoding import Encoding

RESPONSE_TIMEOUT = 60.0
"""Seconds to a complete response: kube-apiserver ends every request except a watch after that time."""
RELAY_TIMEOUT = 75.0
"""Seconds for a relayed request: more than the server's own limit of 60, so that the server gives up first."""
MAX_RESPONSE = 256 * 1024 * 1024
"""The most bytes of a response on the wire. Lists come in pages; only a list whose pages expired comes in one
piece."""
MAX_RELAYED_BODY = 64 * 1024 * 1024
"""The most bytes of a relayed response."""

MAX_SHORT = 4 * 1024 * 1024
"""The most bytes of a body that is decompressed at once: more than one object may have. Only lists have longer bodies;
they stay compressed until one thread decompresses and decodes them."""
MAX_REFUSAL = 64 * 1024
"""The most bytes of a refusal's Status, which is cached and given to each client. A longer one is reduced to its
code."""

GZIP = "gzip"
"""The coding that every kube-apiserver supports."""

NETWORK_ERRORS = (OSError, EOFError, zlib.error)
"""The exceptions for a response that is missing or truncated."""


class Unreachable(Exception):
    """There is no response, or a truncated one, through a fault of network or server, not of the request."""


class Switched(Unreachable):
    """The server failed, and another one takes over. The caller should retry at once."""


WARNING = "warning"
"""The header in which kube-apiserver warns of a deprecated API version."""


class TooLarge(Unreachable):
    """The response exceeds the limit. The client has discarded it."""


class ApiResponse(NamedTuple):
    """A complete response with status 2xx."""

    content_type: str
    body: bytes
    """Decompressed, unless longer than MAX_SHORT: then only `decoded` can read it."""
    coding: str = ""
    """The coding in which `body` is still compressed."""
    warning: str = ""
    """The server's `Warning` headers, separated by commas."""

    async def decoded[T](self, decode: Callable[[bytes], T]) -> T:
        """Apply `decode` to the decompressed body. ValueError if `decode` raises it, Unreachable as `request`.

        One thread decompresses and decodes all long bodies in sequence, so that only one is in memory decompressed.
        Twelve lists of 240 KB, compressed, once took 3 GB.
        """
        if not self.coding and len(self.body) <= gzip_bodies.IN_LOOP_LIMIT:
            return decode(self.body)
        return await one_at_a_time(partial(self._decode, decode))

    def found[T](self, find: Callable[[Any], T]) -> T:
        """Apply `find` to the parsed JSON. Unreachable if the JSON has an unexpected form."""
        try:
            return find(orjson.loads(self.body))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Unreachable(f"the answer cannot be read: {type(error).__name__}: {error}") from error

    def _decode[T](self, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(self._unpacked())
        except NETWORK_ERRORS as error:
            raise _unreachable("a packed body", error) from error
        except ValueError as error:
            problem = str(error)
        # The original error holds the body (in its frames, or as json.JSONDecodeError), and may be stored for long.
        raise ValueError(problem)

    def _unpacked(self) -> bytes:
        match self.coding:
            case "gzip":
                return gzip_bodies.unpack_up_to(self.body, gzip_bodies.MAX_UNPACKED)
            case "zstd":
                return zstd_bodies.unpack_up_to(self.body, gzip_bodies.MAX_UNPACKED)
        return self.body


class RawResponse(NamedTuple):
    """A complete response of any status, as it was on the wire."""

    status: int
    headers: Mapping[str, str]
    """Look-ups ignore case; iterating yields repeated headers as well."""
    body: bytes


class WatchStream(NamedTuple):
    """An open watch: its media type, and its bytes as they arrive. The client decompresses gzip only."""

    content_type: str
    chunks: AsyncIterator[bytes]
    coding: str = ""
    warning: str = ""
    """The server's `Warning` headers, separated by commas."""


class Client:
    """Sends requests to one base URL with one set of headers. The caller closes the session; the client does not.

    After a 429 or 503 with Retry-After, `request` and `watch` of the same queue raise StatusError 429 for that time.
    `relay` always sends; health probes and other clients' requests use it.
    """

    def __init__(
        self, session: Session, base_url: str, headers: Mapping[str, str], pauses: Pauses | None = None
    ) -> None:
        """Make a client. It shares `pauses` with another client of the same server, so that both respect
        Retry-After."""
        self._session = session
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._pauses, self._queue = pauses or Pauses(), ""

    def with_headers(self, headers: Mapping[str, str], queue: str | None = None) -> Self:
        """Copy the client with additional headers, and with another queue if `queue` is given."""
        made = copy(self)
        made._headers = {**self._headers, **headers}
        made._queue = self._queue if queue is None else queue
        return made

    def at(self, base_url: str) -> Self:
        """Copy the client for another server, with its own pauses."""
        made = copy(self)
        made._base_url = made._queue = base_url
        return made

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        body: bytes | None = None,
        content_type: str = "application/json",
        codings: str = GZIP,
        timeout: float = RESPONSE_TIMEOUT,
    ) -> ApiResponse:
        """Send a request and read its complete response. StatusError for a status other than 2xx, Unreachable for
        none.

        `codings` is the Accept-Encoding header; the client decompresses gzip and zstd, `ApiResponse.decoded` long
        bodies.
        """
        self._pauses.check(self._queue)
        headers = {**self._headers, "Accept": accept, "Accept-Encoding": codings}
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._base_url + _target(path, query)
        try:
            async with self._session.open(
                method, url, headers=headers.items(), body=body, timeout=timeout
            ) as response:
                if not 200 <= response.status < 300:
                    raise self._refused(response, await _short_body(response))
                return await _answer(response)
        except NETWORK_ERRORS as error:
            raise _unreachable(f"{method} {path}", error) from error

    async def relay(
        self,
        method: str,
        target: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        timeout: float = RELAY_TIMEOUT,
        is_own: bool = False,
    ) -> RawResponse:
        """Relay another client's request unchanged. The response may have any status; Unreachable for none.

        With `is_own`, the request respects Retry-After as `request` does: StatusError 429 for that time.
        """
        if is_own:
            self._pauses.check(self._queue)
        own = {name.lower() for name in self._headers}
        sent = [(name, value) for name, value in headers if name.lower() not in own]
        sent += self._headers.items()
        url = self._base_url + target
        try:
            async with self._session.open(
                method, url, headers=sent, body=body or None, timeout=timeout
            ) as response:
                if is_own:
                    self._pauses.note_retry_after(self._queue, response.status, retry_after(response.headers))
                body = await response.read(MAX_RELAYED_BODY)
                return RawResponse(response.status, response.headers, body)
        except NETWORK_ERRORS as error:
            if isinstance(error, BodyTooLarge):
                reached("relayed answer")
            raise _unreachable(method, error) from error

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = GZIP
    ) -> AsyncIterator[WatchStream]:
        """Open a watch for at most `timeout` seconds. Raises as `request`, also while reading.

        `codings` is the Accept-Encoding header; the client decompresses gzip.
        """
        self._pauses.check(self._queue)
        headers = {**self._headers, "Accept": accept, "Accept-Encoding": codings}
        url = self._base_url + _target(path, query)
        exchange = self._session.open("GET", url, headers=headers.items(), body=None, timeout=timeout)
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(exchange)
            except NETWORK_ERRORS as error:
                raise _unreachable(f"watch {path}", error) from error
            if response.status != 200:
                try:
                    body = await _short_body(response)
                except NETWORK_ERRORS as error:
                    raise _unreachable(f"watch {path}", error) from error
                raise self._refused(response, body)
            coding, chunks = _coding(response), response.chunks()
            if coding == GZIP:
                coding, chunks = "", unpack_stream(chunks)
            yield WatchStream(_media_type(response), _read(path, chunks), coding, _warning(response))

    def _refused(self, response: Response, body: bytes) -> StatusError | Unreachable:
        """The error for a response that is not 2xx."""
        error = _refusal(response, body)
        error.retry_after = retry_after(response.headers) or bounded(error.retry_after or 0)
        self._pauses.note_retry_after(self._queue, error.code, error.retry_after)
        return error


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def _media_type(response: Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip()


def _refusal(response: Response, body: bytes) -> StatusError:
    """Parse the server's own Status, in JSON or protobuf."""
    body = body[:MAX_REFUSAL]
    if _media_type(response) == Encoding.PROTOBUF:
        try:
            api_version, kind, raw = codec_for(Encoding.PROTOBUF).decode_single(body)
            if kind == "Status":
                return read_status(decode_object(Encoding.PROTOBUF, api_version, kind, raw).fields)
        except ValueError:
            pass
    return parse_status(body, response.status)


def _coding(response: Response) -> str:
    return response.headers.get("Content-Encoding", "")


def _warning(response: Response) -> str:
    if WARNING not in response.headers:
        return ""
    return ", ".join(text for name, text in response.headers.items() if name.lower() == WARNING)


async def _answer(response: Response) -> ApiResponse:
    """Build a complete response; a long body stays compressed."""
    content_type, coding, warning = _media_type(response), _coding(response), _warning(response)
    body = await response.read(MAX_RESPONSE)
    try:
        return ApiResponse(content_type, await _unpacked(body, coding), warning=warning)
    except BodyTooLarge:
        return ApiResponse(content_type, body, coding, warning)


async def _short_body(response: Response) -> bytes:
    """The decompressed body of a refusal."""
    return await _unpacked(await response.read(MAX_SHORT), _coding(response))


async def _unpacked(body: bytes, coding: str) -> bytes:
    match coding:
        case "gzip":
            return await gzip_bodies.unpack(body, MAX_SHORT)
        case "zstd":
            return await zstd_bodies.unpack(body, MAX_SHORT)
    return body


def _unreachable(what: str, error: BaseException) -> Unreachable:
    kind = TooLarge if isinstance(error, BodyTooLarge) else Unreachable
    name = type(error).__name__
    return kind(f"{what}: {name}: {error}" if str(error) else f"{what}: {name}")


async def _read(path: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a stream. Errors of the stream become Unreachable; errors of the stream's consumer do
    not."""
    try:
        async for chunk in chunks:
            yield chunk
            del chunk  # The next chunk may come in an hour.
    except NETWORK_ERRORS as error:
        raise _unreachable(f"watch {path}", error) from error
