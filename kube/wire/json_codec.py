"""The JSON encoding: joins lists and frames from the texts of objects, and splits them again."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from kube.bounds import reached
from kube.errors import StatusError
from kube.packed_text import Kept, packed
from kube.requests.resource_versions import parse_version
from kube.wire.codec_base import (
    EVENT_TYPES,
    MAX_FRAME,
    MAX_ITEMS,
    META_GROUP,
    NO_ANNOTATIONS,
    NO_REST,
    Codec,
    FrameReader,
    ListBody,
    ListPage,
    ObjectPeek,
    Rest,
    item_kind,
    write_version,
)
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits
from kube.wire.json_fields import (
    JsonFields,
    JsonObject,
    TooDeep,
    join_without_types,
    parse_json_lazily,
    parse_object,
    parse_object_lazily,
    size_of_type,
    write_json,
)
from kube.wire.json_frames import JsonFrameReader, peek_of, type_of
from kube.wire.negotiation import METADATA_KIND

LONG_LIST = 1024 * 1024
"""Lists of more bytes are parsed in parts. orjson holds the interpreter's lock while it parses: one call for 16 MiB
stopped the event loop for half a second, even from another thread."""
MAX_AT_ONCE = 16 * 1024 * 1024
"""Bytes of a list that is parsed in one call because it is not written as a kube-apiserver writes lists."""
PART = 64 * 1024
"""Bytes of such a part, up to the end of its last object. orjson parses them in about a millisecond."""


class JsonCodec(Codec):
    """application/json."""

    encoding = Encoding.JSON
    content_type = "application/json"
    watch_content_type = "application/json"

    def decode_list(self, body: bytes) -> ListPage[bytes]:
        return self._decode(body, bytes)

    def decode_kept(self, body: bytes) -> ListPage[Kept]:
        return self._decode(body, self.kept)

    def _decode[T: Kept](self, body: bytes, form: Callable[[bytes], T]) -> ListPage[T]:
        page, items = _read(body, form)
        metadata = JsonFields(page, Edits()).child("metadata")
        api_version, kind = _type_of_items(page)
        return ListPage(
            api_version,
            kind,
            parse_version(metadata.text("resourceVersion")),
            metadata.text("continue"),
            metadata.number("remainingItemCount") or None,
            items,
        )

    def encode_list(
        self, api_version: str, kind: str, version: int, items: Sequence[Kept], rest: Rest = NO_REST
    ) -> ListBody:
        metadata = page_metadata(version, rest)
        page = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": metadata}
        head, tail = write_json(page)[:-1] + b',"items":[', b"]}\n"
        size = len(head) + sum(map(len, items)) + max(len(items) - 1, 0) * len(_COMMA) + len(tail)
        if kind == METADATA_KIND:
            return ListBody(head, items, tail, size, _COMMA.join, _COMMA)
        size -= sum(map(size_of_type, items))
        return ListBody(head, items, tail, size, join_without_types, _COMMA)

    def kept(self, raw: bytes) -> Kept:
        return packed(raw, size_of_type(raw))

    def decode_single(self, body: bytes) -> tuple[str, str, bytes]:
        parsed = parse_object(body)
        api_version, kind = type_of(parsed)
        # An indented body would break a watch, where each line is an event. The server's own body has one line.
        raw = body.strip(_BLANKS)
        return api_version, kind, write_json(parsed) if _LINE_END.search(raw) else raw

    def encode_single(self, api_version: str, kind: str, raw: bytes) -> bytes:
        return raw + b"\n"

    def peek(self, raw: bytes) -> ObjectPeek:
        return peek_of(parse_object_lazily(raw))

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
        fields = JsonFields(parse_object_lazily(raw), Edits())
        fields.child("metadata").set("resourceVersion", write_version(version))
        return fields.encode()

    def name_alone(self, api_version: str, kind: str, key: tuple[str, str], version: int) -> bytes:
        metadata = {"name": key[1], "namespace": key[0], "resourceVersion": write_version(version)}
        named = {name: value for name, value in metadata.items() if value}
        return write_json({"kind": kind, "apiVersion": api_version, "metadata": named})

    def metadata_only(self, raw: bytes, version: str = "v1") -> bytes:
        metadata = parse_object_lazily(raw).get("metadata")
        return write_json(
            {
                "kind": METADATA_KIND,
                "apiVersion": f"{META_GROUP}/{version}",
                "metadata": metadata if isinstance(metadata, dict) else {},
            }
        )

    def frames(self) -> FrameReader:
        return JsonFrameReader()


def page_metadata(version: int, rest: Rest) -> JsonObject:
    """The metadata of a list, or of a page of one."""
    metadata: JsonObject = {"resourceVersion": write_version(version)}
    if rest.continue_token:
        metadata["continue"] = rest.continue_token
    if rest.remaining:
        metadata["remainingItemCount"] = rest.remaining
    return metadata


def _type_of_items(page: JsonObject) -> tuple[str, str]:
    fields = JsonFields(page, Edits())
    return fields.text("apiVersion"), item_kind(fields.text("kind"))


def _write(page: JsonObject, items: object) -> Iterator[bytes]:
    """The raw forms of the items. Items of built-in kinds lack apiVersion and kind, which are added here."""
    if items is None:  # Go's nil slice
        return
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("the items of a list must be objects")
    api_version, kind = _type_of_items(page)
    head = {"kind": kind, "apiVersion": api_version}
    for item in items:
        yield write_json(item if head.keys() <= item.keys() else head | item)


def _read[T](body: bytes, form: Callable[[bytes], T]) -> tuple[JsonObject, list[T]]:
    """A list, and its items converted by `form`. Items that are nested too deep for any parser are left out."""
    if len(body) <= LONG_LIST:
        with contextlib.suppress(TooDeep):
            return _read_at_once(body, form)
    return _read_in_parts(body, form)


def _read_at_once[T](body: bytes, form: Callable[[bytes], T]) -> tuple[JsonObject, list[T]]:
    """A list, parsed in one call, and its items converted by `form`."""
    if len(body) > MAX_AT_ONCE:
        raise ValueError(
            f"a list of over {MAX_AT_ONCE} bytes is not written as a kube-apiserver writes lists"
        )
    page = parse_object_lazily(body)
    return page, list(map(form, _write(page, page.get("items"))))


def _read_in_parts[T](body: bytes, form: Callable[[bytes], T]) -> tuple[JsonObject, list[T]]:
    """A long list, and its items converted by `form`: some items are parsed at a time, and the body without them.

    Where both are valid JSON, so is the whole, because each part of the items is an array of its own. A list that does
    not begin as a kube-apiserver's is parsed in one call.
    """
    beginning = _before_items(body)
    if beginning is None:
        return _read_at_once(body, form)
    before, begin = beginning
    read: list[T] = []
    end = begin
    for items, end_of_part in _parts(body, begin):
        read += map(form, _write(before, items))
        end = end_of_part
        if len(read) > MAX_ITEMS:
            raise ValueError(f"a list is over the limit of {MAX_ITEMS} items")
    if begin + len(body) - end > LONG_LIST + PART:
        return _read_at_once(body, form)
    page = parse_object(body[:begin] + body[end:])
    # Of two values with one name the last counts, and a name may be written with escapes.
    may_have_more = body.find(b'"items"', end) >= 0 or body.find(b"\\u", end) >= 0
    if may_have_more or _type_of_items(page) != _type_of_items(before):
        return _read_at_once(body, form)
    return page, read


def _before_items(body: bytes) -> tuple[JsonObject, int] | None:
    """The fields before a list's items, with its type, and where the items begin; None where that is not certain."""
    match = _ITEMS.search(body, 0, PART)
    if match is None:
        return None
    try:
        # This parses only where "items" is a field of the list itself, and not of an object in it.
        before = parse_object(body[: match.end()] + b"]}")
        if "kind" not in before:
            before |= _after_items(body)
        _type_of_items(before)
    except ValueError:
        return None
    return before, match.end()


def _after_items(body: bytes) -> JsonObject:
    """The fields that seem to follow a list's items. A kube-apiserver writes the kind of custom resources there."""
    match = _KIND_BEHIND.search(body, max(len(body) - PART, 0))
    return parse_object(b"{" + match["fields"]) if match is not None else {}


def _parts(body: bytes, begin: int) -> Iterator[tuple[list[object], int]]:
    """Part after part of the items, and where each ends. The last part ends before the closing bracket."""
    first = _FIRST_NAME.match(body, begin)
    between = re.compile(rb"\}(,)\{" + re.escape(first["name"])) if first is not None else None
    while True:
        # Text that looks like the beginning of an item mostly is one. It is for certain where the text before it is a
        # whole array.
        guess = between.search(body, begin + PART, begin + 2 * PART) if between is not None else None
        items = _array(body[begin : guess.start(1)]) if guess is not None else None
        if guess is not None and items is not None:
            yield items, guess.start(1)
            begin = guess.end(1)
            continue
        end, is_last = _end_of_part(body, begin, PART)
        items = _array(body[begin:end])
        if items is None:
            items = list(_readable(body, begin, end))
        elif not items and body[begin - 1 : begin] == b",":
            raise ValueError(f"the items of a list are no JSON after char {begin}")
        yield items, end
        if is_last:
            return
        begin = body.index(b",", end) + 1


def _array(inside: bytes) -> list[object] | None:
    """The items in the inside of an array, parsed at the depth that they have in a list; None for malformed JSON."""
    try:
        values = parse_json_lazily(b"[[%b]]" % inside)
    except ValueError:
        return None
    items = values[0] if isinstance(values, list) and len(values) == 1 else None
    return items if isinstance(items, list) else None


def _readable(body: bytes, begin: int, end: int) -> Iterator[object]:
    """The items of a part one by one, without those that are nested too deep for any parser."""
    while True:
        end_of_item, is_last = _end_of_part(body, begin, 1)
        try:
            yield parse_json_lazily(body[begin:end_of_item])
        except TooDeep:
            reached("depth of an object")
        if is_last or end_of_item >= end:
            return
        begin = body.index(b",", end_of_item) + 1


def _end_of_part(body: bytes, at: int, part: int) -> tuple[int, bool]:
    """Where a part that begins at `at` ends, and whether it is the last.

    A part is at least `part` bytes long. It ends after an item that a comma follows, or before the closing bracket.
    """
    begin, depth = at, 0
    limit = min(len(body), at + part + MAX_FRAME)
    while (run := _RUN.match(body, at, limit)) is not None and run.end() > at:
        at = run.end()
        if run["bracket"]:
            depth += _STEPS[body[at - 1]]
            if depth < 0:
                return at - 1, True
            if not depth and at - begin >= part and _SEPARATOR.match(body, at, limit):
                return at, False
    raise ValueError(f"unexpected end of data, or an object over {MAX_FRAME} bytes: char {at}")


_BLANKS = b" \t\r\n"
_COMMA = b","
_LINE_END = re.compile(rb"[\r\n]")
_EVENT_HEADS = {event_type: b'{"type":"%b","object":' % event_type.encode() for event_type in EVENT_TYPES}
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ITEMS = re.compile(rb'"items"[ \t\r\n]*:[ \t\r\n]*\[')
_KIND_BEHIND = re.compile(rb'\][ \t\r\n]*,(?P<fields>[ \t\r\n]*"kind"[^\[\]]*\}[ \t\r\n]*)\Z')
_FIRST_NAME = re.compile(rb"\{(?P<name>" + _STRING + rb"):", re.DOTALL)
_SEPARATOR = re.compile(rb"[ \t\r\n]*,")
_RUN = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb"){0,64}+(?P<bracket>[\[\]{}])?+", re.DOTALL)
"""Strings and what is between them, up to the next bracket. A match is short, so that other threads get their turns."""
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
