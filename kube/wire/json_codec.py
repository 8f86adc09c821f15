"""The JSON encoding: joins lists and frames from the texts of objects, and splits them again."""

import re
from collections.abc import Iterator, Mapping, Sequence

import orjson

from kube.errors import StatusError
from kube.packed_text import Kept, packed
from kube.requests.resource_versions import parse_version
from kube.wire.codec_base import (
    EVENT_TYPES,
    MAX_FRAME,
    MAX_ITEMS,
    METADATA_API_VERSION,
    NO_ANNOTATIONS,
    Codec,
    FrameReader,
    ListBody,
    ListPage,
    ObjectPeek,
    WatchFrame,
    item_kind,
    read_status,
    write_version,
)
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits
from kube.wire.json_fields import JsonFields, JsonObject, parse_object, write_json
from kube.wire.negotiation import METADATA_KIND

LONG_LIST = 1024 * 1024
"""Bytes of a list from which on the codec reads it in parts. orjson keeps the interpreter's lock while it parses: one
call for 16 MiB held the event loop for half a second, from whichever thread."""
MAX_AT_ONCE = 16 * 1024 * 1024
"""Bytes of a list that the codec parses by one call, because it is not written as a kube-apiserver writes lists."""
PART = 64 * 1024
"""Bytes of such a part, and an object at most. orjson parses them in about a millisecond."""


class JsonCodec(Codec):
    """application/json."""

    encoding = Encoding.JSON
    content_type = "application/json"
    watch_content_type = "application/json"

    def decode_list(self, body: bytes) -> ListPage:
        page, raws = _read_in_parts(body) if len(body) > LONG_LIST else _read_at_once(body)
        metadata = JsonFields(page, Edits()).child("metadata")
        api_version, kind = _type_of_items(page)
        return ListPage(
            api_version,
            kind,
            parse_version(metadata.text("resourceVersion")),
            metadata.text("continue"),
            metadata.number("remainingItemCount") or None,
            raws,
        )

    def encode_list(self, api_version: str, kind: str, version: int, items: Sequence[Kept]) -> ListBody:
        page = {
            "kind": f"{kind}List",
            "apiVersion": api_version,
            "metadata": {"resourceVersion": write_version(version)},
        }
        head, tail = write_json(page)[:-1] + b',"items":[', b"]}\n"
        size = len(head) + sum(map(len, items)) + max(len(items) - 1, 0) * len(_COMMA) + len(tail)
        return ListBody(head, items, tail, size, _COMMA.join, _COMMA)

    def kept(self, raw: bytes) -> Kept:
        return packed(raw)

    def decode_single(self, body: bytes) -> tuple[str, str, bytes]:
        parsed = parse_object(body)
        api_version, kind = _type_of(parsed)
        # An indented body would break a watch, where each line is an event. The server's own body has one line.
        raw = body.strip(_BLANKS)
        return api_version, kind, write_json(parsed) if _LINE_END.search(raw) else raw

    def encode_single(self, api_version: str, kind: str, raw: bytes) -> bytes:
        return raw + b"\n"

    def peek(self, raw: bytes) -> ObjectPeek:
        metadata = JsonFields(parse_object(raw), Edits()).child("metadata")
        return ObjectPeek(
            metadata.text("namespace"),
            metadata.text("name"),
            parse_version(metadata.text("resourceVersion")),
            metadata.mapping("labels"),
        )

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

    def encode_status(self, error: StatusError) -> bytes:
        return error.to_json()

    def with_version(self, raw: bytes, version: int) -> bytes:
        fields = JsonFields(parse_object(raw), Edits())
        fields.child("metadata").set("resourceVersion", write_version(version))
        return fields.encode()

    def metadata_only(self, raw: bytes) -> bytes:
        metadata = parse_object(raw).get("metadata")
        return write_json(
            {
                "kind": METADATA_KIND,
                "apiVersion": METADATA_API_VERSION,
                "metadata": metadata if isinstance(metadata, dict) else {},
            }
        )

    def frames(self) -> FrameReader:
        return JsonFrameReader()


def _type_of_items(page: JsonObject) -> tuple[str, str]:
    fields = JsonFields(page, Edits())
    return fields.text("apiVersion"), item_kind(fields.text("kind"))


def _write(page: JsonObject, items: object) -> Iterator[bytes]:
    """The raw forms of the items. Those of built-in kinds come without apiVersion and kind, others have them."""
    if items is None:  # Go's nil slice
        return
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("the items of a list must be objects")
    api_version, kind = _type_of_items(page)
    head = {"kind": kind, "apiVersion": api_version}
    for item in items:
        yield write_json(head | item)


def _read_at_once(body: bytes) -> tuple[JsonObject, list[bytes]]:
    """A list, and the raw forms of its items."""
    if len(body) > MAX_AT_ONCE:
        raise ValueError(
            f"a list of over {MAX_AT_ONCE} bytes is not written as a kube-apiserver writes lists"
        )
    page = parse_object(body)
    return page, list(_write(page, page.get("items")))


def _read_in_parts(body: bytes) -> tuple[JsonObject, list[bytes]]:
    """The same, for a long list: the items are parsed some at a time, and the body is parsed without them.

    The whole is JSON where both are, because each part fits between two brackets. A list that does not begin as a
    kube-apiserver's is read at once.
    """
    beginning = _before_items(body)
    if beginning is None:
        return _read_at_once(body)
    before, begin = beginning
    raws: list[bytes] = []
    end = begin
    for items, end_of_part in _parts(body, begin):
        raws += _write(before, items)
        end = end_of_part
        if len(raws) > MAX_ITEMS:
            raise ValueError(f"a list is over the limit of {MAX_ITEMS} items")
    if begin + len(body) - end > LONG_LIST + PART:
        return _read_at_once(body)
    page = parse_object(body[:begin] + body[end:])
    # Of two values with one name the last counts, and a name may be written with escapes.
    may_have_more = body.find(b'"items"', end) >= 0 or body.find(b"\\u", end) >= 0
    if may_have_more or _type_of_items(page) != _type_of_items(before):
        return _read_at_once(body)
    return page, raws


def _before_items(body: bytes) -> tuple[JsonObject, int] | None:
    """What a list has before its items, with its type, and where their array begins. None where that is not plain."""
    found = _ITEMS.search(body, 0, PART)
    if found is None:
        return None
    try:
        # This is an object only where the name is one of its own, and no other object's in it.
        before = parse_object(body[: found.end()] + b"]}")
        if "kind" not in before:
            before |= _after_items(body)
        _type_of_items(before)
    except ValueError:
        return None
    return before, found.end()


def _after_items(body: bytes) -> JsonObject:
    """What a list seems to have behind its items. A kube-apiserver writes the kind of custom resources there."""
    found = _KIND_BEHIND.search(body, max(len(body) - PART, 0))
    return parse_object(b"{" + found["fields"]) if found is not None else {}


def _parts(body: bytes, begin: int) -> Iterator[tuple[list[object], int]]:
    """Some of the items after others, and where they end. The last ones end before the bracket."""
    first = _FIRST_NAME.match(body, begin)
    between = re.compile(rb"\}(,)\{" + re.escape(first["name"])) if first is not None else None
    while True:
        # Most often another item begins where the text looks so. It does where what is before it is a whole array.
        guess = between.search(body, begin + PART, begin + 2 * PART) if between is not None else None
        items = _array(body[begin : guess.start(1)]) if guess is not None else None
        if guess is not None and items is not None:
            yield items, guess.start(1)
            begin = guess.end(1)
            continue
        end, is_last = _end_of_part(body, begin)
        items = _array(body[begin:end])
        if items is None or (not items and body[begin - 1 : begin] == b","):
            raise ValueError(f"the items of a list are no JSON after char {begin}")
        yield items, end
        if is_last:
            return
        begin = body.index(b",", end) + 1


def _array(inside: bytes) -> list[object] | None:
    """The items between two brackets, as deep as they are in a list; None where that is no JSON array."""
    try:
        (items,) = orjson.loads(b"[[%b]]" % inside)
    except ValueError:
        return None
    return items if isinstance(items, list) else None


def _end_of_part(body: bytes, at: int) -> tuple[int, bool]:
    """Where a part that begins here ends: behind an item that a comma follows, or before the bracket after the last."""
    begin, depth = at, 0
    limit = min(len(body), at + PART + MAX_FRAME)
    while (run := _RUN.match(body, at, limit)) is not None and run.end() > at:
        at = run.end()
        if run["bracket"]:
            depth += _STEPS[body[at - 1]]
            if depth < 0:
                return at - 1, True
            if not depth and at - begin >= PART and _SEPARATOR.match(body, at, limit):
                return at, False
    raise ValueError(f"unexpected end of data, or an object over {MAX_FRAME} bytes: char {at}")


_BLANKS = b" \t\r\n"
_COMMA = b","
_LINE_END = re.compile(rb"[\r\n]")
_EVENT_HEADS = {each: b'{"type":"%b","object":' % each.encode() for each in EVENT_TYPES}


class JsonFrameReader(FrameReader):
    """Events are JSON objects one after another.

    A kube-apiserver ends each event with a newline, so the reader first parses the text before a newline as one event.
    Where that fails (indented events, or several with nothing between them) it finds events by their braces, until one
    is followed by a newline or by nothing. So it looks at each byte a bounded number of times.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray()
        self._without_newline = 0
        self._braces: _Braces | None = None

    def _read(self, chunk: bytes) -> list[WatchFrame]:
        self._buffer += chunk
        may_end_an_event = _EVENT_END.search(chunk, chunk.rfind(b"\n") + 1) is not None
        frames: list[WatchFrame] = []
        while (event := self._next(may_end_an_event)) is not None:
            frames.append(_frame(event))
        if len(self._buffer) > MAX_FRAME:
            raise ValueError(f"an event is over the limit of {MAX_FRAME} bytes")
        return frames

    def _left_over(self) -> int:
        return len(self._buffer)

    def _next(self, may_end_an_event: bool) -> JsonObject | None:
        solid = _SOLID.search(self._buffer)
        del self._buffer[: solid.start() if solid else None]
        if not self._buffer:
            self._braces = None
            return None
        if not self._buffer.startswith(b"{"):
            raise ValueError(f"an event does not begin with a brace: {bytes(self._buffer[:32])!r}")
        if self._braces is None:
            event = self._next_line(may_end_an_event)
            if event is not None or self._braces is None:
                return event
        end = self._braces.find_end(self._buffer)
        if end is None:
            return None
        event = self._take(end)
        self._braces = None if _NEWLINE.match(self._buffer) else _Braces()
        return event

    def _next_line(self, may_end_an_event: bool) -> JsonObject | None:
        """The event on a line of its own, if it is complete; when there is no such line, `_braces` is set."""
        end = self._buffer.find(b"\n", self._without_newline)
        if end < 0:
            end = self._without_newline = len(self._buffer)
            if not may_end_an_event:
                return None
        try:
            return self._take(end)
        except ValueError:
            self._braces = _Braces()
            return None

    def _take(self, end: int) -> JsonObject:
        """Parse the buffer up to `end` and, when that is an object, remove it."""
        if end > MAX_FRAME:
            raise ValueError(f"an event of {end} bytes is over the limit of {MAX_FRAME}")
        with memoryview(self._buffer) as view, view[:end] as text:
            event = parse_object(text)
        del self._buffer[:end]
        self._without_newline = 0
        return event


class _Braces:
    """Finds where the JSON object at the beginning of a buffer ends; the buffer may grow between two looks."""

    def __init__(self) -> None:
        self._position = 0
        self._depth = 0
        self._in_text = False

    def find_end(self, buffer: bytearray) -> int | None:
        """Index after the object's last brace; None when it is not there yet."""
        if self._in_text:
            rest = _TEXT_GOES_ON.match(buffer, self._position)
            assert rest is not None  # it matches nothing, too
            self._position, self._in_text = rest.end(), not rest["end"]
            if self._in_text:
                return None
        token = None
        for token in _TOKEN.finditer(buffer, self._position):
            self._depth += _STEPS.get(buffer[token.start()], 0)
            if not self._depth:
                return token.end()
        self._in_text = token is not None and token["end"] == b""
        self._position = token.end() if token is not None and self._in_text else len(buffer)
        return None


_TEXT = rb'[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>"?+)'
"""The inside of a text, up to its end or, when it has none yet, to what is there of it but half an escape."""
_TEXT_GOES_ON = re.compile(_TEXT, re.DOTALL)
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ITEMS = re.compile(rb'"items"[ \t\r\n]*:[ \t\r\n]*\[')
_KIND_BEHIND = re.compile(rb'\][ \t\r\n]*,(?P<fields>[ \t\r\n]*"kind"[^\[\]]*\}[ \t\r\n]*)\Z')
_FIRST_NAME = re.compile(rb"\{(?P<name>" + _STRING + rb"):", re.DOTALL)
_SEPARATOR = re.compile(rb"[ \t\r\n]*,")
_RUN = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb"){0,64}+(?P<bracket>[\[\]{}])?+", re.DOTALL)
"""Texts and what is between them, up to the next bracket. A match is short, so that other threads get their turns."""
_TOKEN = re.compile(rb'"' + _TEXT + rb"|[{}\[\]]", re.DOTALL)
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}

_EVENT_END = re.compile(rb"\}[ \t\r]*(?:\{|\Z)")
"""Where an event may end without a newline: at the end of what is there, or before another; `}{` is no JSON."""
_SOLID = re.compile(rb"[^ \t\r\n]")
_NEWLINE = re.compile(rb"[ \t\r]*\n")


def _type_of(parsed: JsonObject) -> tuple[str, str]:
    api_version, kind = parsed.get("apiVersion"), parsed.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise ValueError("an object must have apiVersion and kind")
    return api_version, kind


def _frame(event: JsonObject) -> WatchFrame:
    event_type, watched = event.get("type"), event.get("object")
    if not isinstance(event_type, str) or event_type not in EVENT_TYPES:
        raise ValueError(f"{event_type!r:.64} is no type of a watch event")
    if not isinstance(watched, dict):
        raise ValueError(f"the object of a watch event is {type(watched).__name__}")
    api_version, kind = _type_of(watched)
    raw = write_json(watched)
    if event_type != "ERROR":
        return WatchFrame(event_type, api_version, kind, raw)
    if kind != "Status":
        raise ValueError(f"an ERROR event holds a {kind!r}, not a Status")
    return WatchFrame(event_type, api_version, kind, raw, read_status(JsonFields(watched, Edits())))
