"""Creates requests, responses and errors as mitmproxy's types, but faster than their constructors.

A relayed request is two messages of ten attributes each, and its headers are read some thirty times. mitmproxy calls a
function for each field at each read of a header, and its constructors compare each attribute with its annotation. For
an attribute that is None that comparison creates errors that refer to themselves, and so keep all callers' frames
alive.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus

from mitmproxy import http
from mitmproxy.net.http import status_codes, url

from addons.requests.answers import status_answer
from kube.errors import StatusError, bad_request, entity_too_large, unavailable
from kube.http.transport.request_fields import CONNECTION_HEADERS

type HeadFields = tuple[tuple[bytes, bytes], ...]

UNROUTED = ("127.0.0.1", 1)
"""Host and port that interfaces show for a request before it has a route. Nothing listens there."""
WITHOUT_BODY = (204, 304)
"""Status codes of answers that have neither a body nor a length."""
REASON_LIMIT = 200
"""Maximum characters of an error message that a Status repeats."""
SWITCHING_PROTOCOLS = 101
"""Status code (101) after which client and server switch to another protocol."""


class IndexedHeaders(http.Headers):
    """Header fields with an index by name, built at the first read and again after a change."""

    _indexed: HeadFields | None = None
    """The fields from which `_values` was built."""
    _values: dict[bytes, bytes]
    """The value of each lower-case name; values of a repeated name are joined by commas."""

    def get_all(self, name: str | bytes) -> list[str]:
        if self._indexed is not self.fields:
            self._index()
        if (wanted := _key(name)) not in self._values:
            return []
        return [
            value.decode("utf-8", "surrogateescape") for key, value in self.fields if key.lower() == wanted
        ]

    def __getitem__(self, key: str | bytes) -> str:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get[T](self, key: str | bytes, default: T | None = None) -> str | T | None:
        if self._indexed is not self.fields:
            self._index()
        value = self._values.get(_key(key))
        return default if value is None else value.decode("utf-8", "surrogateescape")

    def __contains__(self, key: object) -> bool:
        if self._indexed is not self.fields:
            self._index()
        return isinstance(key, (str, bytes)) and _key(key) in self._values

    def _index(self) -> None:
        self._indexed, self._values = self.fields, _joined(self.fields)


def _joined(fields: HeadFields) -> dict[bytes, bytes]:
    values = {name.lower(): value for name, value in fields}
    if len(values) < len(fields):
        repeated: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            repeated.setdefault(name.lower(), []).append(value)
        values = {key: b", ".join(of_key) for key, of_key in repeated.items()}
    return values


@lru_cache
def _key(name: str | bytes) -> bytes:
    """Return the form of a name in which names are compared. Cached: a relayed request does some thirty look-ups."""
    return (name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name).lower()


def request_of_line(method: bytes, target: bytes, version: bytes, fields: HeadFields) -> http.Request:
    """Make a request from an HTTP/1.1 head. ValueError for a malformed target, and for a CONNECT."""
    if method == b"CONNECT":
        raise ValueError("CONNECT is not supported on this port")
    if target.startswith(b"/") or target == b"*":
        return _request(version, fields, UNROUTED, method, b"http", b"", target)
    scheme, separator, rest = target.partition(b"://")
    authority, _, path = rest.partition(b"/")
    try:
        host, port = url.parse_authority(authority, check=True)
        port = port or url.default_port(scheme.decode())
    except ValueError:
        port = None
    if not separator or not port:
        raise ValueError("the request's target is neither a path nor an absolute URL")
    return _request(version, fields, (host, port), method, scheme, authority, b"/" + path)


def request_of_fields(fields: Iterable[tuple[bytes, bytes]]) -> http.Request:
    """Make a request from an HTTP/2 head. ValueError if it is malformed."""
    pseudo_headers: dict[bytes, bytes] = {}
    others = []
    for name, value in fields:
        if not name.startswith(b":"):
            others.append((name, value))
        elif name in pseudo_headers:
            raise ValueError(f"the pseudo-header {name!r} is repeated")
        else:
            pseudo_headers[name] = value
    method, scheme, path = (pseudo_headers.get(name, b"") for name in (b":method", b":scheme", b":path"))
    authority = pseudo_headers.get(b":authority", b"")
    if authority:
        url.parse_authority(authority, check=True)
    return _request(b"HTTP/2.0", tuple(others), UNROUTED, method, scheme, authority, path)


def response_of_answer(status: int, fields: Iterable[tuple[str, str]]) -> http.Response:
    """Make the head of a response that the hub answers itself."""
    encoded = tuple(
        (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
        for name, value in fields
    )
    reason = status_codes.RESPONSES.get(status, "").encode()
    return _response(b"HTTP/1.1", encoded, status, reason)


def response_of_server(
    status: int, fields: Sequence[tuple[bytes, bytes]], request: http.Request
) -> http.Response:
    """Make the head of a server's response in the client's version of HTTP."""
    if status != SWITCHING_PROTOCOLS:
        fields = [field for field in fields if field[0] not in CONNECTION_HEADERS]
    if request.is_http2:
        return _response(b"HTTP/2.0", tuple(fields), status, b"")
    reason = status_codes.RESPONSES.get(status, "").encode()
    return _response(b"HTTP/1.1", tuple(fields), status, reason)


def show_server(request: http.Request, scheme: str, host: str, port: int) -> None:
    """Show in interfaces which server gets a request. Like mitmproxy's setter of `host`, it also changes the `Host`
    header.
    """
    data, named = request.data, url.hostport(scheme, host, port).encode()
    data.scheme, data.host, data.port = scheme.encode(), host, port
    if data.authority:
        data.authority = named
    data.headers.fields = tuple(
        [(name, named if name.lower() == b"host" else value) for name, value in data.headers.fields]
    )


def refuse(flow: http.HTTPFlow, error: StatusError) -> None:
    """Answer the flow with a Status. Any response from upstream, and a streamed request body, is dropped."""
    answer = status_answer(error)
    flow.request.stream = False
    flow.request.headers.pop("Expect", None)  # the body is not read, so no 100 is sent
    flow.response = response_of_answer(answer.status, answer.headers.items())
    flow.response.content = error.to_json()


def error_response(status_code: int, message: str = "") -> bytes:
    """Return a complete HTTP/1.1 error response, after which the connection closes."""
    body = error_body(status_code, message)
    try:
        reason = HTTPStatus(status_code).phrase
    except ValueError:
        reason = "Error"
    head = (
        f"HTTP/1.1 {status_code} {reason}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def error_body(status_code: int, message: str) -> bytes:
    """Return a Status as JSON, with the answer's code even if Kubernetes defines no reason for that code."""
    return json.dumps({**_status_of(status_code, message).to_dict(), "code": status_code}).encode()


def _request(
    version: bytes,
    fields: HeadFields,
    server: tuple[str, int],
    method: bytes,
    scheme: bytes,
    authority: bytes,
    path: bytes,
) -> http.Request:
    made = http.Request.__new__(http.Request)
    data = made.data = http.RequestData.__new__(http.RequestData)
    _fill(data, version, fields)
    data.host, data.port = server
    data.method, data.scheme, data.authority, data.path = method, scheme, authority, path
    return made


def _response(version: bytes, fields: HeadFields, code: int, reason: bytes) -> http.Response:
    made = http.Response.__new__(http.Response)
    data = made.data = http.ResponseData.__new__(http.ResponseData)
    _fill(data, version, fields)
    data.status_code, data.reason = code, reason
    return made


def _fill(data: http.MessageData, version: bytes, fields: HeadFields) -> None:
    """Set the attributes of a message without its constructor, which checks types: the values come from parsers of
    mitmproxy.
    """
    data.headers = IndexedHeaders.__new__(IndexedHeaders)
    data.headers.fields = fields
    data.http_version, data.content, data.trailers = version, None, None
    data.timestamp_start, data.timestamp_end = time.time(), None


def _status_of(code: int, message: str) -> StatusError:
    if code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return entity_too_large(message)
    if code < HTTPStatus.INTERNAL_SERVER_ERROR:
        error = bad_request(message)
        return StatusError(code, error.reason, message)
    if code == HTTPStatus.BAD_GATEWAY:
        return unavailable(f"the cloud cannot be reached: {_brief(message)}")
    return unavailable(message)


def _brief(message: str) -> str:
    return re.sub(r"\s+", " ", message)[:REASON_LIMIT]
