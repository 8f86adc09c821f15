"""The header fields of a request, as HTTP/2 has them. A value is sent byte for byte, or the request is refused."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from kube.errors import StatusError, bad_request

CONNECTION_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
"""Connection-specific headers, which HTTP/2 forbids (RFC 9113, 8.2.2)."""
NOT_SENT = CONNECTION_HEADERS | {b"te", b"host"}
"""Request headers that are not forwarded, because they concern the client's connection or HTTP/2 replaces them."""
MINIMAL = (b"prefer", b"return=minimal")
"""The sender reads only the head of a successful response (RFC 7240, 4.2)."""

TOKEN = f"{string.ascii_letters}{string.digits}!#$%&'*+-.^_`|~".encode()
"""The characters of a method and of a header's name (RFC 9110, 5.6.2)."""
_TOKEN = re.compile(f"[{re.escape(TOKEN.decode())}]+")
_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
"""A header's value (RFC 9110, 5.5): no control characters except tabs, no blank at either end."""
_PATH = re.compile(r"[!-~]+")

type HeaderFields = list[tuple[bytes, bytes]]


def request_fields(
    method: str,
    scheme: str,
    authority: str,
    path: str,
    headers: Iterable[tuple[str, str]],
    body: bytes | None,
) -> HeaderFields:
    """The fields of a request, with `:method`, `:scheme`, `:authority` and `:path` first.

    StatusError 400 for a value that cannot be sent.
    """
    if not _TOKEN.fullmatch(method) or not _PATH.fullmatch(path):
        raise bad_request("the request line cannot be sent")
    sent = [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)]
    fields = [(name.encode(), value.encode()) for name, value in sent]
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise bad_request("the name of a header cannot be sent")
        lower = name.lower().encode()
        if lower not in NOT_SENT and lower != b"content-length":
            fields.append((lower, _value(name, value)))
    if body is not None:
        fields.append((b"content-length", str(len(body)).encode()))
    return fields


def with_prefix(prefix: bytes, fields: HeaderFields) -> HeaderFields:
    """The fields of a request to a server whose paths all begin with `prefix`."""
    if not prefix:
        return fields
    method, scheme, authority, (name, path), *others = fields
    return [method, scheme, authority, (name, prefix + path), *others]


def ends_early(value: bytes) -> bool:
    """True if a header's value, or several joined values, contain a NUL or a line break, at which a receiver might end
    it."""
    # As numbers: for bytes, `in` first raises and drops an error.
    return 0 in value or 10 in value or 13 in value


def _value(name: str, value: str) -> bytes:
    try:
        raw = value.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise _unsendable(name) from None
    if not _VALUE.fullmatch(raw):
        raise _unsendable(name)
    return raw


def _unsendable(name: str) -> StatusError:
    """The error for an invalid header. It does not quote the value, which may be a secret."""
    return bad_request(f"the value of the header {name} cannot be sent")
