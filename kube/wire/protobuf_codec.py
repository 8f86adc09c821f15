"""The protobuf encoding. Envelopes, lists and watch frames are built by hand, objects parsed with the minimal schema.

Layouts are those of apimachinery's protobuf serializer and its length-delimited framer.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kube.errors import StatusError
from kube.message_table import META
from kube.packed_text import StoredText
from kube.requests.resource_versions import parse_version
from kube.wire.codec_base import (
    EVENT_TYPES,
    MAX_FRAME,
    MAX_ITEMS,
    NO_ANNOTATIONS,
    Codec,
    FrameReader,
    ListBody,
    ListMeta,
    ListPage,
    ObjectPeek,
    WatchFrame,
    item_kind,
    read_status,
    write_version,
)
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits
from kube.wire.protobuf_fields import ProtobufFields, read_entries
from kube.wire.schema import MESSAGES, METADATA

MAGIC = b"k8s\x00"
"""The prefix of every body, and of every object in a frame; a WatchEvent itself has none."""

SIZES = 4096
"""The most cached headers of a list's items, by item size: the objects of a kind have few different sizes."""
LONG_LIST = 1024 * 1024
"""Lists of more bytes are parsed object by object. protobuf holds the interpreter's lock while it parses: one call for
240 MiB of empty objects stopped the event loop for eight seconds, even from another thread."""
HEADS = 256
"""The most cached envelope headers, one for each kind, of some tens of bytes. A node reads fewer kinds."""

_UNKNOWN = MESSAGES["apimachinery.pkg.runtime.Unknown"]
_STATUS = MESSAGES[f"{META}.Status"]
_WATCH_EVENT = MESSAGES[f"{META}.WatchEvent"]
_ANY_LIST = MESSAGES["wire.AnyList"]
_ANY_METADATA = MESSAGES["wire.AnyMetadata"]
_PEEK = MESSAGES["wire.Peek"]

_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"
_FIELD_4_NUMBER = b"\x20"
"""Tags of length-delimited fields."""
_TAIL = b"\x1a\x00\x22\x00"
"""contentEncoding and contentType of runtime.Unknown, which servers always write, empty."""
_RAW = _ITEMS = 2
"""The field numbers of the message in an envelope, and of the objects in a list."""
_DELIMITED = 2
"""The wire type of a length-delimited field."""
_FRAME_LENGTH = struct.Struct(">I")
_MAX_INT32 = 2**31 - 1


class ProtobufCodec(Codec):
    """application/vnd.kubernetes.protobuf."""

    encoding = Encoding.PROTOBUF
    content_type = "application/vnd.kubernetes.protobuf"
    watch_content_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def decode_list(self, body: bytes) -> ListPage[bytes]:
        if len(body) > LONG_LIST:
            api_version, kind, page, raws = _open_long_list(body)
        else:
            api_version, kind, raw = open_envelope(body)
            page = _ANY_LIST.parse(raw)
            raws = list(page.items)
        items = item_kind(kind)
        metadata = page.metadata
        return ListPage(
            api_version,
            items,
            parse_version(_text(metadata.resourceVersion)),
            _text(getattr(metadata, "continue")),  # "continue" is a keyword of Python
            metadata.remainingItemCount or None,
            raws,
        )

    def encode_list(
        self, api_version: str, kind: str, meta: ListMeta, items: Sequence[StoredText]
    ) -> ListBody:
        # selfLink, resourceVersion and continue, which servers always write.
        metadata = b"\x0a\x00" + delimited(_FIELD_2, write_version(meta.version).encode())
        metadata += delimited(_FIELD_3, meta.continue_token.encode())
        if meta.remaining:
            metadata += _FIELD_4_NUMBER + varint(meta.remaining)
        head = delimited(_FIELD_1, metadata)
        sizes = [len(raw) for raw in items]
        size = len(head) + sum(sizes) + sum(map(len, map(_item_head, sizes)))
        envelope = _head(api_version, f"{kind}List") + varint(size)
        return ListBody(envelope + head, items, _TAIL, len(envelope) + size + len(_TAIL), _join_items)

    def decode_single(self, body: bytes) -> tuple[str, str, bytes]:
        return open_envelope(body)

    def encode_single(self, api_version: str, kind: str, raw: bytes) -> bytes:
        return b"".join((_head(api_version, kind), varint(len(raw)), raw, _TAIL))

    def peek(self, raw: bytes) -> ObjectPeek:
        metadata = _PEEK.parse(raw).metadata
        return ObjectPeek(
            _text(metadata.namespace),
            _text(metadata.name),
            parse_version(_text(metadata.resourceVersion)),
            read_entries(metadata.labels),
        )

    def encode_event(self, event_type: str, api_version: str, kind: str, raw: bytes) -> bytes:
        event_type_field = _EVENT_TYPE_FIELDS[event_type]
        head, raw_size = _head(api_version, kind), varint(len(raw))
        envelope = len(head) + len(raw_size) + len(raw) + len(_TAIL)
        envelope_size = varint(envelope)
        extension = len(_FIELD_1) + len(envelope_size) + envelope
        extension_size = varint(extension)
        event = len(event_type_field) + len(_FIELD_2) + len(extension_size) + extension
        return b"".join(
            (
                _FRAME_LENGTH.pack(event),
                event_type_field,
                _FIELD_2,
                extension_size,
                _FIELD_1,
                envelope_size,
                head,
                raw_size,
                raw,
                _TAIL,
            )
        )

    def encode_bookmark(
        self, api_version: str, kind: str, version: int, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": write_version(version)}
        if annotations:
            pairs = annotations.items()
            metadata["annotations"] = [{"key": name, "value": value} for name, value in pairs]
        raw: bytes = METADATA.new(metadata=metadata).SerializeToString()
        return self.encode_event("BOOKMARK", api_version, kind, raw)

    def encode_error(self, error: StatusError) -> bytes:
        return self.encode_event("ERROR", "v1", "Status", _status(error))

    def name_alone(self, api_version: str, kind: str, key: tuple[str, str], version: int) -> bytes:
        metadata = {"name": key[1], "namespace": key[0], "resourceVersion": write_version(version)}
        raw: bytes = METADATA.new(metadata=metadata).SerializeToString()
        return raw

    def with_version(self, raw: bytes, version: int) -> bytes:
        message = METADATA.parse(raw)
        message.metadata.resourceVersion = write_version(version)
        written: bytes = message.SerializeToString()
        return written

    def metadata_only(self, raw: bytes, version: str = "v1") -> bytes:
        # Concatenating the parts of a split message merges them.
        return delimited(_FIELD_1, b"".join(_ANY_METADATA.parse(raw).metadata))

    def frames(self) -> FrameReader:
        return ProtobufFrameReader()


class ProtobufFrameReader(FrameReader):
    """A reader of frames: each is a length in four bytes, big-endian, and a WatchEvent."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray()

    def _read(self, chunk: bytes) -> list[WatchFrame]:
        self._buffer += chunk
        frames: list[WatchFrame] = []
        start, filled = 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            while (begin := start + _FRAME_LENGTH.size) <= filled:
                (size,) = _FRAME_LENGTH.unpack_from(view, start)
                if size > MAX_FRAME:
                    raise ValueError(f"an event of {size} bytes is over the limit of {MAX_FRAME}")
                if begin + size > filled:
                    break
                start = begin + size
                frames.append(_frame(view[begin:start].tobytes()))
        del self._buffer[:start]
        return frames

    def _left_over(self) -> int:
        return len(self._buffer)


def _frame(frame: bytes) -> WatchFrame:
    event = _WATCH_EVENT.parse(frame)
    event_type: str = event.type
    if event_type not in EVENT_TYPES:
        raise ValueError(f"{event_type!r} is not a watch event type")
    api_version, kind, raw = open_envelope(event.object.raw)
    if event_type != "ERROR":
        return WatchFrame(event_type, api_version, kind, raw)
    if kind != "Status":
        raise ValueError(f"an ERROR event holds a {kind!r}, not a Status")
    status = read_status(ProtobufFields(_STATUS, _STATUS.parse(raw), Edits()))
    return WatchFrame(event_type, api_version, kind, raw, status)


def open_envelope(body: bytes) -> tuple[str, str, bytes]:
    """Return apiVersion, kind and raw message of magic and runtime.Unknown; ValueError if malformed."""
    unknown = _UNKNOWN.parse(_after_magic(body))
    type_meta = unknown.typeMeta
    return _text(type_meta.apiVersion), _text(type_meta.kind), unknown.raw


def _open_long_list(body: bytes) -> tuple[str, str, Any, list[bytes]]:
    """Return apiVersion, kind, the list without its items, and the items. No protobuf call parses more than LONG_LIST
    bytes."""
    raw, others = memoryview(b""), bytearray()
    for number, field, content in _fields(_after_magic(body)):
        if number == _RAW:
            raw = content
        else:
            _add_short(others, field)
    type_meta = _UNKNOWN.parse(bytes(others)).typeMeta
    items: list[bytes] = []
    others.clear()
    for number, field, content in _fields(raw):
        if number != _ITEMS:
            _add_short(others, field)
        elif len(content) > MAX_FRAME or len(items) == MAX_ITEMS:
            raise ValueError(f"a list is over the limit of {MAX_ITEMS} items, or one of {MAX_FRAME} bytes")
        else:
            items.append(bytes(content))
    return _text(type_meta.apiVersion), _text(type_meta.kind), _ANY_LIST.parse(bytes(others)), items


def _after_magic(body: bytes) -> memoryview:
    if body[: len(MAGIC)] != MAGIC:
        raise ValueError("not Kubernetes protobuf: it does not begin with k8s\\0")
    return memoryview(body)[len(MAGIC) :]


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield number, bytes and content of each field of a message; all must be length-delimited."""
    begin = 0
    while begin < len(message):
        tag, at = read_varint(message, begin)
        size, start = read_varint(message, at)
        end = start + size
        if tag & 7 != _DELIMITED or end > len(message):
            raise ValueError("a list in protobuf is cut off, or has a field of an unknown form")
        yield tag >> 3, message[begin:end], message[start:end]
        begin = end


def _add_short(others: bytearray, field: memoryview) -> None:
    if len(others) + len(field) > LONG_LIST:
        raise ValueError(f"the metadata of a list is over the limit of {LONG_LIST} bytes")
    others += field


def varint(number: int) -> bytes:
    """Encode a non-negative number as a varint."""
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80,)) + varint(number >> 7)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Decode the varint at an index, of at most 64 bits; return it and its end offset. ValueError if the data ends
    within."""
    number = 0
    for group, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * group
        if not byte & 0x80:
            return number, at + group + 1
    raise ValueError("a length in protobuf is not complete")


def delimited(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    return tag + varint(len(content)) + content


@lru_cache(HEADS)
def _head(api_version: str, kind: str) -> bytes:
    """The bytes of an envelope before the length of its raw message."""
    type_meta = delimited(_FIELD_1, api_version.encode()) + delimited(_FIELD_2, kind.encode())
    return MAGIC + delimited(_FIELD_1, type_meta) + _FIELD_2


@lru_cache(SIZES)
def _item_head(size: int) -> bytes:
    """The bytes before an object of this size in a list."""
    return _FIELD_2 + varint(size)


def _join_items(items: Sequence[bytes]) -> bytes:
    return b"".join([part for raw in items for part in (_item_head(len(raw)), raw)])


_EVENT_TYPE_FIELDS = {event_type: delimited(_FIELD_1, event_type.encode()) for event_type in EVENT_TYPES}


def _text(value: str | bytes) -> str:
    """A string that must be UTF-8 in the API: in an envelope, in metadata, or a kind."""
    if isinstance(value, bytes):
        raise ValueError(f"not UTF-8: {value[:64]!r}")
    return value


def _status(error: StatusError) -> bytes:
    """Encode a metav1.Status. `details` may come from an upstream's JSON: values of a wrong type are dropped."""
    message = _STATUS.new(
        status="Failure", message=_sendable(error.message), reason=_sendable(error.reason), code=error.code
    )
    _set_texts(message.details, error.details, ("name", "group", "kind", "uid"))
    causes = error.details.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, Mapping):
            _set_texts(message.details.causes.add(), cause, ("reason", "message", "field"))
    retry_after = error.details.get("retryAfterSeconds")
    if isinstance(retry_after, int) and 0 < retry_after <= _MAX_INT32:
        message.details.retryAfterSeconds = retry_after
    raw: bytes = message.SerializeToString()
    return raw


def _set_texts(message: Any, values: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if isinstance(values.get(name), str):
            setattr(message, name, _sendable(values[name]))


def _sendable(text: str) -> str:
    """The text with "?" for surrogates, which represent undecodable bytes of a request; protobuf refuses them."""
    return text.encode(errors="replace").decode()
