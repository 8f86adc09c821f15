"""Requests and responses as mitmproxy has them, made without what mitmproxy does to each of them many times.

A relayed request reads thirty headers, and is two messages of ten fields each. mitmproxy calls a function for each
field at each read of a header, and compares the fields of each message that it makes with their annotations. For a
field that is None the comparison leaves errors that refer to themselves, and so to all that called it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from mitmproxy import http
from mitmproxy.net.http import status_codes
from mitmproxy.net.http.http1.read import _read_headers, _read_request_line
from mitmproxy.proxy.layers.http._http2 import parse_h2_request_headers

from addons.requests.answers import status_answer
from addons.requests.exchange.client_side import WITHOUT_BODY
from kube.errors import StatusError
from kube.http.transport.request_fields import OF_CONNECTION

type HeadFields = tuple[tuple[bytes, bytes], ...]


class HeadersReadOnce(http.Headers):
    """Header fields that are sorted once, until somebody changes them."""

    _of: HeadFields | None = None
    """The fields that the values are of."""
    _values: dict[bytes, list[bytes]]

    def get_all(self, name: str | bytes) -> list[str]:
        return [_text(value) for value in self._all(name)]

    def __getitem__(self, key: str | bytes) -> str:
        values = self._all(key)
        if not values:
            raise KeyError(key)
        return ", ".join(map(_text, values))

    def get[T](self, key: str | bytes, default: T | None = None) -> str | T | None:
        values = self._all(key)
        return ", ".join(map(_text, values)) if values else default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, (str, bytes)) and bool(self._all(key))

    def _all(self, name: str | bytes) -> Sequence[bytes]:
        if self._of is not self.fields:
            self._of, self._values = self.fields, {}
            for key, value in self.fields:
                self._values.setdefault(key.lower(), []).append(value)
        return self._values.get(_key(name), ())


@lru_cache
def _key(name: str | bytes) -> bytes:
    """A name as names are compared. Who asks for one takes it from some thirty, as a rule."""
    return (name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name).lower()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def request_of_lines(lines: Sequence[bytes]) -> http.Request:
    """A request's head of HTTP/1.1; ValueError where it is malformed."""
    *head, version = _read_request_line(lines[0])
    return _request(version, _read_headers(lines[1:]).fields, head)


def request_of_fields(fields: Sequence[tuple[bytes, bytes]]) -> http.Request:
    """A request's head of HTTP/2; ValueError where it is malformed."""
    *head, headers = parse_h2_request_headers(fields)
    return _request(b"HTTP/2.0", headers.fields, head)


def response_of_answer(status: int, fields: Iterable[tuple[str, str]]) -> http.Response:
    """The head of an answer that the hub makes itself."""
    encoded = tuple(
        (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
        for name, value in fields
    )
    reason = status_codes.RESPONSES.get(status, "").encode()
    return _response(b"HTTP/1.1", encoded, status, reason)


def response_of_server(
    status: int, fields: Sequence[tuple[bytes, bytes]], request: http.Request, *, is_framed: bool
) -> http.Response:
    """The head of a server's answer as the client's version of HTTP has it."""
    if status != 101:
        fields = [field for field in fields if field[0] not in OF_CONNECTION]
    if request.is_http2:
        return _response(b"HTTP/2.0", tuple(fields), status, b"")
    reason = status_codes.RESPONSES.get(status, "").encode()
    made = _response(b"HTTP/1.1", tuple(fields), status, reason)
    if is_framed:
        tell_end(made, request)
    return made


def tell_end(response: http.Response, request: http.Request) -> None:
    """Have a body without a length come in chunks. A client of HTTP/1.0 knows the end by that of the connection."""
    code = response.status_code
    has_body = code >= 200 and code not in WITHOUT_BODY and "Content-Length" not in response.headers
    if has_body and not request.is_http2 and request.http_version != "HTTP/1.0":
        response.headers["Transfer-Encoding"] = "chunked"


def refuse(flow: http.HTTPFlow, error: StatusError) -> None:
    """Answer with a Status; what came from upstream, and what was to be streamed, is dropped."""
    answer = status_answer(error)
    flow.request.stream = False
    flow.request.headers.pop("Expect", None)  # nobody is asked to go on with a body that nobody reads
    flow.response = response_of_answer(answer.status, answer.headers.items())
    flow.response.content = error.to_json()


def _request(version: bytes, fields: HeadFields, head: Iterable[object]) -> http.Request:
    made = http.Request.__new__(http.Request)
    names = ("host", "port", "method", "scheme", "authority", "path")
    made.data = _data(http.RequestData, version, fields, dict(zip(names, head, strict=True)))
    return made


def _response(version: bytes, fields: HeadFields, code: int, reason: bytes) -> http.Response:
    made = http.Response.__new__(http.Response)
    made.data = _data(http.ResponseData, version, fields, {"status_code": code, "reason": reason})
    return made


def _data[T](kind: type[T], version: bytes, fields: HeadFields, others: Mapping[str, object]) -> T:
    """The data of a message, past the constructor, which checks types: its parsers are mitmproxy's."""
    made, read_once = kind.__new__(kind), HeadersReadOnce.__new__(HeadersReadOnce)
    read_once.fields = fields
    common = {"content": None, "trailers": None, "timestamp_start": time.time(), "timestamp_end": None}
    vars(made).update(http_version=version, headers=read_once, **common, **others)
    return made
