"""Validates request heads, and builds the heads to send upstream. Pure: names and values are bytes.

mitmproxy accepts values that HTTP/2 can carry and HTTP/1.1 cannot: a space in a method yields another request line, and
a server may interpret a NUL or a carriage return in a value differently (RFC 9112, 11.1 and 11.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from addons.requests.request_context import ServerConnections
from kube.errors import StatusError, bad_request
from kube.http.transport.request_fields import NOT_SENT, TOKEN, HeaderFields, ends_early

MAX_HEADERS = 64 * 1024
"""Maximum bytes of a request's header names and values. Kubernetes clients send less than 8 KiB."""
MAX_FIELDS = 1_000
"""Maximum header fields of a request. Each of some thirty header look-ups scans all of them. Kubernetes clients send a
dozen, and one for each group that they impersonate.
"""
MAX_TARGET = 8 * 1024
"""Maximum bytes of a request target: path and query. Selectors of client-go stay well below it."""

MAX_METHOD = 32
"""Maximum characters of a request method; the longest registered one has 17."""

FRAMING = frozenset({b"content-length", b"transfer-encoding"})
WITH_BODY = (b"POST", b"PUT", b"PATCH")
"""Methods whose requests always have a body, possibly an empty one (RFC 9110, 8.6)."""
ESSENTIAL_FIELDS = FRAMING | {b"authorization"}
"""Fields that are sent upstream even if `Connection` names them, because the request means something else without
them.
"""

type FieldPairs = Sequence[tuple[bytes, bytes]]
"""Names and values of header fields, in their order."""

_VISIBLE = bytes(range(0x21, 0x7F))


def fault_of(method: bytes, target: bytes, authority: bytes, fields: FieldPairs) -> StatusError | None:
    """Return the error for which a request with this head is refused; None if the head is valid."""
    if len(target) > MAX_TARGET:
        return target_too_long()
    if not 0 < len(method) <= MAX_METHOD or method.translate(None, TOKEN):
        return bad_request("the request's method is not a token")
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    if codings and set(codings) != {b"chunked"}:
        return StatusError(501, "BadRequest", "chunked is the only supported transfer coding")
    if (target + authority).translate(None, _VISIBLE):
        return bad_request("the request's target has bytes that are not visible ASCII")
    return fields_fault_of(fields)


def fields_fault_of(fields: FieldPairs) -> StatusError | None:
    """Return the error in the header fields of a request or response; None if they are valid."""
    names, values = [name for name, _ in fields], [value for _, value in fields]
    all_names, all_values = b"".join(names), b"".join(values)
    if len(fields) > MAX_FIELDS or len(all_names) + len(all_values) > MAX_HEADERS:
        return headers_too_large()
    if not all(names) or all_names.translate(None, TOKEN):
        return bad_request("the name of a header is not a token")
    if ends_early(all_values):
        return bad_request("the value of a header has a NUL or a line break")
    return None


def is_upgrade(fields: FieldPairs) -> bool:
    """Whether a request asks to change the protocol of its connection (RFC 9110, 7.8)."""
    if b"upgrade" not in {name.lower() for name, _ in fields}:
        return False
    return b"upgrade" in connection_options(
        b",".join(value for name, value in fields if name.lower() == b"connection")
    )


def fields_to_send(
    method: bytes, target: bytes, fields: FieldPairs, server: ServerConnections, length: int | None
) -> HeaderFields:
    """Build the head of the upstream request in HTTP/2 form. `length` is the size of a complete body; None for a
    streamed one.

    Hop-by-hop fields are dropped (RFC 9110, 7.6.1): the client names them, and the server might trust them.
    """
    host = f"[{server.host}]" if ":" in server.host else server.host
    head = [
        (b":method", method),
        (b":scheme", server.scheme.encode()),
        (b":authority", f"{host}:{server.port}".encode()),
        (b":path", target),
    ]
    others: HeaderFields = []
    cookies, upgrades = [], []
    options: set[bytes] = set()
    for name, value in fields:
        lower = name.lower()
        if lower == b"cookie":
            cookies.append(value)
        elif lower not in NOT_SENT and (lower != b"content-length" or length is None):
            others.append((lower, value))
        elif lower == b"connection":
            options |= connection_options(value)
        elif lower == b"upgrade":
            upgrades.append(value)
    if options:
        dropped = options - ESSENTIAL_FIELDS
        others = [field for field in others if field[0] not in dropped]
        if upgrades and b"upgrade" in options:
            head += (b"connection", b"Upgrade"), (b"upgrade", b", ".join(upgrades))
    head += others
    if cookies:
        head.append((b"cookie", b"; ".join(cookies)))
    if length or (length is not None and method in WITH_BODY):
        head.append((b"content-length", b"%d" % length))
    return head


def connection_options(connection: bytes) -> set[bytes]:
    """Return the options of a `Connection` field, in lower case."""
    return {option.strip().lower() for option in connection.split(b",")}


def target_too_long() -> StatusError:
    """Return a 414 with the reason BadRequest: Kubernetes defines no reason for 414."""
    return StatusError(414, "BadRequest", f"the request's target is longer than {MAX_TARGET} bytes")


def headers_too_large() -> StatusError:
    """Return a 431 with the reason BadRequest: Kubernetes defines no reason for 431."""
    return StatusError(
        431,
        "BadRequest",
        f"the request's headers are larger than {MAX_HEADERS} bytes, or more than {MAX_FIELDS}",
    )
