"""The JSON encoding: builds lists and frames from the texts of objects, and splits them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from kube.bounds import reached
from kube.errors import StatusError
from kube.packed_text import COMPRESSION_THRESHOLD, StoredText, packed
from kube.requests.resource_versions import parse_version
from kube.wire.codec_base import (
    EVENT_TYPES,
    MAX_FRAME,
    MAX_ITEMS,
    META_GROUP,
    NO_ANNOTATIONS,
    Codec,
    FrameReader,
    ListBody,
    ListMeta,
    ListPage,
    ObjectPeek,
    item_kind,
    write_version,
)
from kube.wire.encoding import Encoding
from kube.wire.json_fields import (
    JsonObject,
    Metadata,
    TooDeep,
    check_utf8,
    described,
    first_byte,
    is_on_one_line,
    join_without_types,
    on_one_line,
    parse_object,
    raw_fields,
    read_json,
    size_of_type,
    write_json,
)
from kube.wire.json_frames import STEPS, TOKEN, JsonFrameReader
from kube.wire.negotiation import METADATA_KIND

LONG_LIST = 8 * 1024 * 1024
"""Bytes of a list that is split in one call. The parser holds the interpreter's lock for up to 10 ns a byte."""
PART = 64 * 1024
"""Bytes of a longer list that are split at a time, up to the end of an item."""
MAX_PART = 2 * MAX_FRAME
"""The most bytes of such a part. A list that is not formatted as kube-apiserver does is one part."""
BEFORE_ITEMS = 64 * 1024
"""The most bytes before the items of such a list."""
SAFE_DEPTH = 1000
"""Levels of nesting that every supported Python version can parse."""
DEPTH_OF_ITEMS = 2
"""Levels around the items of a list."""


class JsonListMeta(msgspec.Struct, rename="camel"):
    """The metadata of a list."""

    resource_version: str | None = None
    continue_token: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class Page(msgspec.Struct, rename="camel"):
    """A list, or a page of one; its items stay unparsed."""

    api_version: str | None = None
    kind: str | None = None
    metadata: JsonListMeta | None = None
    items: list[msgspec.Raw] | None = None


class ItemType(msgspec.Struct, rename="camel", gc=False):
    """The type of an item. Items of built-in kinds have none."""

    api_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    kind: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class DescribedItem(ItemType, rename="camel", gc=False):
    """An item's type, and the part of its metadata that a store needs."""

    metadata: Metadata | None = None


class JsonCodec(Codec):
    """application/json."""

    encoding = Encoding.JSON
    content_type = "application/json"
    watch_content_type = "application/json"

    def decode_list(self, body: bytes) -> ListPage[bytes]:
        return self._decode(body, bytes)

    def decode_stored(self, body: bytes) -> ListPage[StoredText]:
        return self._decode(body, self.stored)

    def _decode[T: StoredText](self, body: bytes, form: Callable[[bytes], T]) -> ListPage[T]:
        page, items = read_list(body, form)
        metadata = page.metadata or JsonListMeta()
        forms, peeks = [item for item, _ in items], [peek for _, peek in items]
        return ListPage(
            page.api_version or "",
            item_kind(page.kind or ""),
            parse_version(metadata.resource_version or ""),
            metadata.continue_token or "",
            metadata.remaining_item_count or None,
            forms,
            peeks,
        )

    def encode_list(
        self, api_version: str, kind: str, meta: ListMeta, items: Sequence[StoredText]
    ) -> ListBody:
        page = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": page_metadata(meta)}
        head, tail = write_json(page)[:-1] + b',"items":[', b"]}\n"
        size = len(head) + sum(map(len, items)) + max(len(items) - 1, 0) * len(_COMMA) + len(tail)
        if kind == METADATA_KIND:
            return ListBody(head, items, tail, size, _COMMA.join, _COMMA)
        size -= sum(map(size_of_type, items))
        return ListBody(head, items, tail, size, join_without_types, _COMMA)

    def stored(self, raw: bytes) -> StoredText:
        return packed(raw, size_of_type(raw)) if len(raw) >= COMPRESSION_THRESHOLD else raw

    def decode_single(self, body: bytes) -> tuple[str, str, bytes]:
        parse_object(body)
        # An indented body would break a watch, in which each line is an event. kube-apiserver's own body is one line.
        raw = on_one_line(body.strip(_BLANKS))
        return *described(raw).type, raw

    def encode_single(self, api_version: str, kind: str, raw: bytes) -> bytes:
        return raw + b"\n"

    def peek(self, raw: bytes) -> ObjectPeek:
        return described(raw).peek

    def encode_event(self, event_type: str, api_version: str, kind: str, raw: bytes) -> bytes:
        return b"".join((_EVENT_HEADS[event_type], raw, b"}\n"))

    def encode_bookmark(
        self, api_version: str, kind: str, version: int, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> bytes:
        metadata: JsonObject = {"resourceVersion": write_version(version)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        raw = write_json({"kind": kind, "apiVersion": api_version, "metadata": metadata})
        return self.encode_event("BOOKMARK", api_version, kind, raw)

    def encode_error(self, error: StatusError) -> bytes:
        return self.encode_event("ERROR", "v1", "Status", error.to_json().strip(_BLANKS))

    def with_version(self, raw: bytes, version: int) -> bytes:
        fields: dict[str, object] = {**raw_fields(raw)}
        metadata: JsonObject = {**_metadata(raw)}
        metadata["resourceVersion"] = write_version(version)
        return write_json(fields | {"metadata": metadata})

    def name_alone(self, api_version: str, kind: str, key: tuple[str, str], version: int) -> bytes:
        metadata = {"name": key[1], "namespace": key[0], "resourceVersion": write_version(version)}
        named = {name: value for name, value in metadata.items() if value}
        return write_json({"kind": kind, "apiVersion": api_version, "metadata": named})

    def metadata_only(self, raw: bytes, version: str = "v1") -> bytes:
        api_version = f"{META_GROUP}/{version}"
        return write_json({"kind": METADATA_KIND, "apiVersion": api_version, "metadata": _metadata(raw)})

    def frames(self) -> FrameReader:
        return JsonFrameReader()


def page_metadata(meta: ListMeta) -> JsonObject:
    """The metadata of a list, or of a page of one."""
    metadata: JsonObject = {"resourceVersion": write_version(meta.version)}
    if meta.continue_token:
        metadata["continue"] = meta.continue_token
    if meta.remaining:
        metadata["remainingItemCount"] = meta.remaining
    return metadata


def _metadata(raw: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object's metadata."""
    metadata = raw_fields(raw).get("metadata")
    return raw_fields(metadata) if metadata is not None and first_byte(metadata) == b"{" else {}


def read_list[T](body: bytes, form: Callable[[bytes], T]) -> tuple[Page, list[tuple[T, ObjectPeek | None]]]:
    """Decode a list, convert its items by `form`, and peek each. Items that no parser can read are dropped."""
    check_utf8(body)
    try:
        return _read(body, form)
    except TooDeep:
        return _read(_without_deep_items(body), form)


def _read[T](body: bytes, form: Callable[[bytes], T]) -> tuple[Page, list[tuple[T, ObjectPeek | None]]]:
    is_line = is_on_one_line(body)
    if len(body) > LONG_LIST or body.count(b",") > MAX_ITEMS:
        return _read_in_parts(body, form, is_line)
    page = read_json(_PAGE, body)
    return page, list(_with_types(page, page.items or (), form, is_line))


def _read_in_parts[T](
    body: bytes, form: Callable[[bytes], T], is_line: bool
) -> tuple[Page, list[tuple[T, ObjectPeek | None]]]:
    """Decode a long list, formatted as by kube-apiserver, and convert its items by `form`.

    The list is valid if each part of the items is a valid array, and the body with the last part alone is a valid
    list.
    """
    found = _ITEMS.search(body, 0, BEFORE_ITEMS)
    if found is None:
        raise ValueError(_OTHERWISE)
    head = body[: found.end()]
    before = read_json(_PAGE, head + b"]}")  # it is a field of the list, not of an item
    begin, read = found.end(), list[tuple[T, ObjectPeek | None]]()
    for items, end in _parts(body, begin):
        read += _with_types(before, items, form, is_line)
        begin = end
        if len(read) > MAX_ITEMS:
            raise ValueError(f"a list is over the limit of {MAX_ITEMS} items")
    last = _part(body, begin, len(body))
    is_empty = last.lstrip(_BLANKS).startswith(b"]")
    page = read_json(_PAGE, b"".join((head, _MARK, b"" if is_empty else b",", last)))
    # A second field "items" would have replaced this one.
    if not page.items or bytes(page.items[0]) != _MARK:
        raise ValueError("a list has two fields 'items'")
    if before.kind is not None and (page.api_version, page.kind) != (before.api_version, before.kind):
        raise ValueError("a list has two fields 'kind' or 'apiVersion'")
    return page, [*read, *_with_types(page, page.items[1:], form, is_line)]


def _with_types[T](
    page: Page, items: Sequence[msgspec.Raw], form: Callable[[bytes], T], is_line: bool
) -> Iterator[tuple[T, ObjectPeek | None]]:
    """Add apiVersion and kind to items of built-in kinds, which lack both.

    One check tells for all items whether the list is on one line.

    Lists of custom resources have their kind after the items, which have their own.
    """
    head = (
        {"kind": item_kind(page.kind), "apiVersion": page.api_version or ""} if page.kind is not None else {}
    )
    alone = write_json(head)
    before = alone[:-1] + b","
    for item in items:
        text = memoryview(item if is_line else on_one_line(bytes(item)))
        if len(text) > MAX_FRAME:
            raise ValueError(f"an item of a list is over the limit of {MAX_FRAME} bytes")
        type_, peek = _described_item(text)
        if type_.api_version is type_.kind is msgspec.UNSET and head:
            raw = b"".join((before, text[1:])) if len(text) > len(b"{}") else alone
        elif msgspec.UNSET in (type_.api_version, type_.kind):
            if not head:
                raise ValueError(_OTHERWISE)
            raw = write_json(head | parse_object(text))
        else:
            raw = bytes(text)
        yield form(raw), peek


def _described_item(text: memoryview) -> tuple[ItemType, ObjectPeek | None]:
    """Decode the type and the peek of an item; None if only `Codec.peek`, which handles more cases, can make the
    peek."""
    try:
        item = _DESCRIBED_ITEM.decode(text)
        return item, item.metadata.peek if item.metadata is not None else None
    except ValueError:
        return _ITEM_TYPE.decode(text), None


def _parts(body: bytes, begin: int) -> Iterator[tuple[list[msgspec.Raw], int]]:
    """Yield the items part by part, each with the position of the next item (of the last one, at the end).

    Text that looks like the beginning of an item is one if the text before it is a complete array. Otherwise the part
    is doubled.
    """
    first = _FIRST_NAME.match(body, begin)
    between = re.compile(rb"\}(,)\{" + re.escape(first[1] if first is not None else b""))
    least = PART
    while (guess := between.search(body, begin + least, begin + MAX_PART)) is not None:
        end = guess.start(1)
        try:
            items = read_json(_VALUES, b"[%b]" % _part(body, begin, end))
        except (msgspec.DecodeError, TooDeep):
            least = 2 * (end - begin)
            continue
        yield items, guess.end(1)
        begin, least = guess.end(1), PART


def _part(body: bytes, begin: int, end: int) -> bytes:
    """Read a part of a list; ValueError if it may have more values than fit into memory."""
    if end - begin > MAX_PART or body.count(b",", begin, end) > MAX_ITEMS:
        raise ValueError(_OTHERWISE)
    return body[begin:end]


def _without_deep_items(body: bytes) -> bytes:
    """Remove items that are nested too deep for the parser, so that one object does not hide all of its kind."""
    remaining, last, begin, depth, deepest = bytearray(), 0, 0, 0, 0
    for token in TOKEN.finditer(body):
        step = STEPS.get(body[token.start()], 0)
        if step > 0 and depth == DEPTH_OF_ITEMS:
            begin, deepest = token.start(), 0
        depth += step
        deepest = max(deepest, depth)
        if deepest > SAFE_DEPTH and token.end() - begin > MAX_FRAME:
            raise ValueError(f"an item of a list is over the limit of {MAX_FRAME} bytes")
        if (
            step < 0
            and depth == DEPTH_OF_ITEMS
            and deepest > SAFE_DEPTH
            and _is_too_deep(body[begin : token.end()])
        ):
            reached("depth of an object")
            remaining += body[last:begin]
            comma = _SEPARATOR.match(body, token.end())
            last = (comma or token).end()
            if comma is None:
                remaining = remaining.rstrip(_BLANKS).removesuffix(b",")
    return bytes(remaining + body[last:])


def _is_too_deep(item: bytes) -> bool:
    try:
        read_json(_VALUES, b"[[[%b]]]" % item)
    except TooDeep:
        return True
    return False


_BLANKS = b" \t\r\n"
_COMMA = b","
_EVENT_HEADS = {event_type: b'{"type":"%b","object":' % event_type.encode() for event_type in EVENT_TYPES}
_OTHERWISE = "a long list is not written as a kube-apiserver writes lists"
_MARK = b'{"":0}'
_SEPARATOR = re.compile(rb"[ \t\r\n]*,")
_ITEMS = re.compile(rb'"items"[ \t\r\n]*:[ \t\r\n]*\[')
_FIRST_NAME = re.compile(rb'\{("[^"\\]*")')
_PAGE = msgspec.json.Decoder(Page)
_ITEM_TYPE = msgspec.json.Decoder(ItemType)
_DESCRIBED_ITEM = msgspec.json.Decoder(DescribedItem)
_VALUES = msgspec.json.Decoder(list[msgspec.Raw])
