"""The protobuf envelope, lists, watch frames and Status of a Kubernetes API, written by hand from their field numbers.
It uses no code of the product's codec, so that a bug there cannot hide itself here."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kube.json_type import Json

MAGIC = b"k8s\0"
"""The first bytes of every protobuf body, and of every object in a frame."""


def varint(number: int) -> bytes:
    """Encode an unsigned number, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def block(number: int, content: bytes | str) -> bytes:
    """Encode a field with a length: text, bytes or a message."""
    raw = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def integer(number: int, value: int) -> bytes:
    """Encode a field with a non-negative integer."""
    return varint(number << 3) + varint(value)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Encode a body: runtime.Unknown around a message, with the two empty fields that a real server always writes."""
    type_meta = block(1, api_version) + block(2, kind)
    return MAGIC + block(1, type_meta) + block(2, raw) + block(3, b"") + block(4, b"")


def list_message(
    version: int, items: Iterable[bytes], continue_token: str = "", remaining: int | None = None
) -> bytes:
    """Encode any …List: ListMeta and items, which are bare messages."""
    metadata = block(1, b"") + block(2, str(version)) + block(3, continue_token)
    if remaining is not None:
        metadata += integer(4, remaining)
    return block(1, metadata) + b"".join(block(2, item) for item in items)


def frame(event_type: str, body: bytes) -> bytes:
    """Encode one event of a watch: its length, and a WatchEvent without magic that contains an object with it."""
    event = block(1, event_type) + block(2, block(1, body))
    return struct.pack(">I", len(event)) + event


def status_message(status: Json) -> bytes:
    details = status.get("details") or {}
    causes = b"".join(
        block(4, b"".join(block(number, cause.get(name, "")) for number, name in _CAUSE))
        for cause in details.get("causes", [])
    )
    list_meta = block(1, "") + block(2, "") + block(3, "")
    message = block(1, list_meta) + b"".join(block(number, status.get(name, "")) for number, name in _STATUS)
    if details:
        named = b"".join(block(number, details.get(name, "")) for number, name in _DETAILS)
        retry, uid = integer(5, details.get("retryAfterSeconds", 0)), block(6, details.get("uid", ""))
        message += block(5, named + causes + retry + uid)
    return message + integer(6, status.get("code", 0))


_STATUS = ((2, "status"), (3, "message"), (4, "reason"))
_DETAILS = ((1, "name"), (2, "group"), (3, "kind"))
_CAUSE = ((1, "reason"), (2, "message"), (3, "field"))
