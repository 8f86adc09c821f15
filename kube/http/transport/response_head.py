"""Parses the head of an HTTP/2 response, and refuses a head that an HTTP/1.1 client would misread."""

from __future__ import annotations

import re
import string

from kube.http.transport.request_fields import CONNECTION_HEADERS, TOKEN, HeaderFields, ends_early

MAX_FIELDS = 1000
"""The most fields of a head, as for requests. For an HTTP/2 client the encoder compares each field with the earlier
ones."""
_NAMED = TOKEN.translate(None, string.ascii_uppercase.encode())
"""The characters of a name in HTTP/2."""
_LENGTH = re.compile(rb"[0-9]{1,18}")


def parse_head(fields: HeaderFields, *, is_trailer: bool) -> tuple[int, HeaderFields]:
    """Return the status (0 for trailers) and the headers. ValueError if they are malformed."""
    status, headers = 0, fields
    if not is_trailer:
        if not fields or fields[0][0] != b":status":
            raise ValueError("the status is missing")
        raw, headers = fields[0][1], fields[1:]
        status = int(raw) if len(raw) == 3 and raw.isdigit() else 0
        if status < 100 or status == 101:
            raise ValueError("the status is invalid")
    if len(headers) > MAX_FIELDS:
        raise ValueError(f"it has more than {MAX_FIELDS} fields")
    names = [name for name, _ in headers]
    if not all(names) or b"".join(names).translate(None, _NAMED) or not CONNECTION_HEADERS.isdisjoint(names):
        raise ValueError("the name of a header is invalid")
    if ends_early(b"".join([value for _, value in headers])):
        raise ValueError("the value of a header has a NUL or a line break")
    return status, headers


def promised_length(status: int, headers: HeaderFields) -> int | None:
    """The Content-Length of a response's body; None if the headers do not give it. ValueError if it is not a
    number."""
    if status in (204, 304):
        return 0
    said = {value for name, value in headers if name == b"content-length"}
    if not said:
        return None
    length = said.pop()
    if said or not _LENGTH.fullmatch(length):
        raise ValueError("the Content-Length is not a number")
    return int(length)
