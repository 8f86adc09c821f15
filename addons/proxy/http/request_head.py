"""Checks a request's head before any addon sees it. Pure: one request in, the answer that refuses it out.

mitmproxy lets pass what HTTP/2 can carry and HTTP/1.1 cannot: a method with a space becomes another request line, and
a NUL or a carriage return in a value becomes whatever the next server reads in it (RFC 9112, 11.1 and 11.2).
"""

from __future__ import annotations

import re

from mitmproxy import http

from addons.requests.hidden_credentials import path_of, sent_fields
from addons.requests.request_context import RelayUpstream
from kube.errors import StatusError, bad_request
from kube.http.transport.request_fields import NOT_SENT, HeaderFields

MAX_HEADERS = 64 * 1024
"""Bytes of a request's headers, names and values. Kubernetes' clients send less than 8 KiB."""
MAX_FIELDS = 1_000
"""Fields of a request's headers. Each of some thirty looks at a header goes through all of them. Clients of Kubernetes
send a dozen, and one for each group that they impersonate."""
MAX_TARGET = 8 * 1024
"""Bytes of a request's target, path and query. client-go keeps its selectors well below."""

FRAMING = frozenset({b"content-length", b"transfer-encoding"})
WITH_BODY = (b"POST", b"PUT", b"PATCH")
"""Methods whose requests have a body, were it an empty one (RFC 9110, 8.6)."""
KEPT = FRAMING | {b"authorization"}
"""Fields without which a request would be another one, whatever `Connection` says of them."""

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_NO_TARGET = re.compile(rb"[^\x21-\x7e]")
_NO_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_NO_VALUE = re.compile(rb"[\x00\r\n]")


def fault_of(request: http.Request) -> StatusError | None:
    """Why this request is not served; None where nothing is wrong with its head."""
    data = request.data
    if len(data.path) > MAX_TARGET:
        return target_too_long()
    if not _METHOD.fullmatch(data.method):
        return bad_request("the request's method is not a token")
    if _NO_TARGET.search(data.path) or _NO_TARGET.search(data.authority):
        return bad_request("the request's target has bytes that are not visible ASCII")
    return fields_fault_of(request)


def fields_fault_of(message: http.Message) -> StatusError | None:
    """What is wrong with the headers of a request or response; None for nothing."""
    fields = message.headers.fields
    if len(fields) > MAX_FIELDS or sum(len(name) + len(value) for name, value in fields) > MAX_HEADERS:
        return headers_too_large()
    for name, value in fields:
        if not name or _NO_NAME.search(name):
            return bad_request("the name of a header is not a token")
        if _NO_VALUE.search(value):
            return bad_request("the value of a header has a NUL or the end of a line in it")
    return None


def is_upgrade(request: http.Request) -> bool:
    """Whether a request asks for another protocol on its connection (RFC 9110, 7.8)."""
    return "upgrade" in request.headers and b"upgrade" in _options(request)


def fields_to_send(request: http.Request, upstream: RelayUpstream, length: int | None) -> HeaderFields:
    """The head of a request in the form of HTTP/2, with its credentials; `length` is of a body that is there whole.

    What was for the connection that it came by is left out (RFC 9110, 7.6.1): a client says so of any field, which the
    next server might believe.
    """
    dropped = NOT_SENT
    host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
    fields = [
        (b":method", request.data.method),
        (b":scheme", upstream.scheme.encode()),
        (b":authority", f"{host}:{upstream.port}".encode()),
        (b":path", path_of(request)),
    ]
    if "connection" in request.headers:
        dropped = NOT_SENT | (_options(request) - KEPT)
        if is_upgrade(request):
            fields += (b"connection", b"Upgrade"), (b"upgrade", request.headers["upgrade"].encode())
    cookies = []
    for name, value in sent_fields(request):
        lower = name.lower()
        if lower == b"cookie":
            cookies.append(value)
        elif lower not in dropped and (lower != b"content-length" or length is None):
            fields.append((lower, value))
    if cookies:
        fields.append((b"cookie", b"; ".join(cookies)))
    if length or (length is not None and request.data.method in WITH_BODY):
        fields.append((b"content-length", b"%d" % length))
    return fields


def _options(request: http.Request) -> set[bytes]:
    said = request.headers.get_all("Connection")
    return {option.strip().lower().encode() for value in said for option in value.split(",")}


def target_too_long() -> StatusError:
    """414, with the reason of a bad request: Kubernetes has none of its own."""
    return StatusError(414, "BadRequest", f"the request's target is longer than {MAX_TARGET} bytes")


def headers_too_large() -> StatusError:
    """431, as above."""
    return StatusError(
        431,
        "BadRequest",
        f"the request's headers are larger than {MAX_HEADERS} bytes, or more than {MAX_FIELDS}",
    )
