"""Splits the bytes of a JSON watch into events, for any formatting and chunk size."""

import contextlib
import re
from typing import Any

import msgspec

from kube.wire.codec_base import (
    EVENT_TYPES,
    MAX_FRAME,
    FrameReader,
    WatchFrame,
    read_status,
)
from kube.wire.fields import Edits
from kube.wire.json_fields import (
    JsonFields,
    check_utf8,
    described,
    on_one_line,
    parse_object,
    read_json,
)


class EventText(msgspec.Struct):
    """An event whose object stays unparsed."""

    type: Any = None
    object: msgspec.Raw = msgspec.Raw(b"null")


class JsonFrameReader(FrameReader):
    """A reader of events that are JSON objects one after another.

    kube-apiserver ends each event with a newline, so the reader first parses the text before a newline as one event.
    If that fails (indented events, or several without a newline between them), the reader finds events by their
    braces, until one is followed by a newline or the end of the input. So it scans each byte a bounded number of
    times.
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

    def _next(self, may_end_an_event: bool) -> EventText | None:
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

    def _next_line(self, may_end_an_event: bool) -> EventText | None:
        """Return the event on the next line, if it is complete. If events are not one to a line, set `_braces`."""
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

    def _take(self, end: int) -> EventText:
        """Parse the buffer up to `end` and, if that is an event, remove it."""
        if end > MAX_FRAME:
            raise ValueError(f"an event of {end} bytes is over the limit of {MAX_FRAME}")
        text = bytes(self._buffer[:end])
        event = read_json(_EVENT, text)
        check_utf8(text)
        del self._buffer[:end]
        self._without_newline = 0
        return event


class _Braces:
    """Finds the end of the JSON object at the beginning of a buffer, which may grow between calls."""

    def __init__(self) -> None:
        self._position = 0
        self._depth = 0
        self._in_text = False

    def find_end(self, buffer: bytearray) -> int | None:
        """The index after the object's last brace; None if it has not arrived."""
        if self._in_text:
            rest = _TEXT_CONTINUES.match(buffer, self._position)
            assert rest is not None  # the pattern also matches the empty string
            self._position, self._in_text = rest.end(), not rest["end"]
            if self._in_text:
                return None
        token = None
        for token in TOKEN.finditer(buffer, self._position):
            self._depth += STEPS.get(buffer[token.start()], 0)
            if not self._depth:
                return token.end()
        self._in_text = token is not None and token["end"] == b""
        self._position = token.end() if token is not None and self._in_text else len(buffer)
        return None


_TEXT = rb'[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>"?+)'
"""The inside of a string, up to its closing quote or, while that is missing, up to the last complete character."""
_TEXT_CONTINUES = re.compile(_TEXT, re.DOTALL)
TOKEN = re.compile(rb'"' + _TEXT + rb"|[{}\[\]]", re.DOTALL)
STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}

_EVENT_END = re.compile(rb"\}[ \t\r]*(?:\{|\Z)")
"""Where an event may end without a newline: at the end of the input, or before another event; `}{` is not valid
JSON."""
_SOLID = re.compile(rb"[^ \t\r\n]")
_NEWLINE = re.compile(rb"[ \t\r]*\n")


def _frame(event: EventText) -> WatchFrame:
    if not isinstance(event.type, str) or event.type not in EVENT_TYPES:
        raise ValueError(f"{event.type!r:.64} is not a watch event type")
    raw = on_one_line(bytes(event.object))
    if not raw.startswith(b"{"):
        raise ValueError(f"the object of a watch event is {raw[:64]!r}")
    known = described(raw)
    api_version, kind = known.type
    if event.type != "ERROR":
        with contextlib.suppress(ValueError):
            return WatchFrame(event.type, api_version, kind, raw, peek=known.peek)
        return WatchFrame(event.type, api_version, kind, raw)
    if kind != "Status":
        raise ValueError(f"an ERROR event holds a {kind!r}, not a Status")
    status = read_status(JsonFields(parse_object(raw), Edits()))
    return WatchFrame(event.type, api_version, kind, raw, status)


_EVENT = msgspec.json.Decoder(EventText)
