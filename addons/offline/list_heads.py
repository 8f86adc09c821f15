"""Reads the metadata of a list from the first bytes of its body, however long the list is.

A kube-apiserver writes the metadata of a list before its items, in either encoding.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import orjson

from kube.requests.resource_versions import parse_version
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC, delimited, read_varint

HEAD = 64 * 1024
"""Bytes that hold the metadata of a list: a continue token is of some hundred."""

_ITEMS = re.compile(rb'"(?:items|columnDefinitions|rows)"\s*:')
"""What follows the metadata of a list, and of a Table. A string cannot hold it: its quotes would be escaped."""
_TYPE_META, _RAW, _METADATA = b"\x0a", b"\x12", b"\x0a"
"""Tags: of runtime.Unknown its typeMeta and raw message, of a list its metadata."""


class ListHead(NamedTuple):
    """The metadata of a list, or of a Table. `continue_token` is "" where no further page follows."""

    version: int
    continue_token: str


def list_head(encoding: Encoding, head: bytes) -> ListHead:
    """The metadata of a list that begins so.

    `head` is the first HEAD bytes of the body, or all of a shorter one. ValueError where they do not hold the metadata.
    """
    return _of_json(head) if encoding is Encoding.JSON else _of_protobuf(head)


def _of_json(head: bytes) -> ListHead:
    items = _ITEMS.search(head) if len(head) >= HEAD else None
    page = orjson.loads(head[: items.start()].rstrip().removesuffix(b",") + b"}" if items else head)
    metadata = page.get("metadata") if isinstance(page, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("the body does not begin as a list")
    version = parse_version(str(metadata.get("resourceVersion") or ""))
    return ListHead(version, str(metadata.get("continue") or ""))


def _of_protobuf(head: bytes) -> ListHead:
    if not head.startswith(MAGIC):
        raise ValueError("not Kubernetes protobuf: it does not begin with k8s\\0")
    type_meta, at = _field(head, len(MAGIC), _TYPE_META)
    _, at = _length(head, at, _RAW)
    metadata, _ = _field(head, at, _METADATA)
    envelope = MAGIC + delimited(_TYPE_META, type_meta) + delimited(_RAW, delimited(_METADATA, metadata))
    page = codec_for(Encoding.PROTOBUF).decode_list(envelope)
    return ListHead(page.version, page.continue_token)


def _field(head: bytes, at: int, tag: bytes) -> tuple[bytes, int]:
    """The content of a field with a length, and where the next field begins."""
    length, begin = _length(head, at, tag)
    if begin + length > len(head):
        raise ValueError("the metadata of the list ends early")
    return head[begin : begin + length], begin + length


def _length(head: bytes, at: int, tag: bytes) -> tuple[int, int]:
    """How long a field is, and where its content begins."""
    if not head.startswith(tag, at):
        raise ValueError("the body does not begin as a list")
    return read_varint(head, at + len(tag))
