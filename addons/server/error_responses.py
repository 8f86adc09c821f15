"""Answers that no addon sees, as a Kubernetes Status: to what is malformed or too large, and where a server fails."""

from __future__ import annotations

import json
import re
from http import HTTPStatus

from kube.errors import StatusError, bad_request, entity_too_large, unavailable

LONGEST_REASON = 200
"""Characters of a reason that a Status repeats."""


def error_response(status_code: int, message: str = "") -> bytes:
    """A whole answer of HTTP/1.1, after which the connection ends."""
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
    """A Status as JSON. Its code is that of the answer, also where the hub has none of its own for it."""
    return json.dumps({**_status(status_code, message).to_dict(), "code": status_code}).encode()


def _status(code: int, message: str) -> StatusError:
    if code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return entity_too_large(message)
    if code < HTTPStatus.INTERNAL_SERVER_ERROR:
        error = bad_request(message)
        return StatusError(code, error.reason, message)
    if code == HTTPStatus.BAD_GATEWAY:
        return unavailable(f"the cloud cannot be reached: {_brief(message)}")
    return unavailable(message)


def _brief(message: str) -> str:
    return re.sub(r"\s+", " ", message)[:LONGEST_REASON]
