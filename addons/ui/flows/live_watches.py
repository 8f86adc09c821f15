"""Shows each event of an open watch, decoded, as a message of the watch's flow, in both of mitmproxy's interfaces.

mitmproxy shows messages only for WebSockets, so a watch's flow gets a `WebSocketData`. A message to the client is an
event that the component got. A message from the client is an event of the cloud that filters changed or dropped.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mitmproxy import http
from mitmproxy.websocket import WebSocketData, WebSocketMessage
from wsproto.frame_protocol import Opcode

from addons.filters.verdict import Outcome
from addons.ui.dry_run import DryRunResult
from addons.ui.flows.bodies import NOTE, ByteBudget, StreamFunction
from addons.ui.flows.flow_records import FilteredRead
from addons.ui.masking import DEFAULT_VISIBILITY, Visible
from addons.ui.readable import as_yaml, item_tree, readable_event
from kube.requests.continue_tokens import key_text
from kube.store.scope import Scope
from kube.store.store import Change, Store
from kube.wire.codec import Codec, FrameReader, WatchFrame

MAX_EVENTS = 200
"""Maximum stored messages of a watch's flow; the oldest are dropped."""
MAX_EVENT = 16 * 1024
"""Maximum characters of one message."""
MAX_WATCH = 1024 * 1024
"""Maximum characters of all messages of a watch."""
MAX_ALL = 32 * 1024 * 1024
"""Maximum characters of the messages of all watches."""
MAX_WAITING = 4 * 1024 * 1024
"""Maximum bytes of a watch that wait to be decoded. A larger frame ends the display of the watch, not the watch."""
DECODE_BATCH = 20
"""Events decoded at once, so that a burst does not block the event loop."""
PAUSE = 0.05
"""Seconds between two such batches."""


@dataclass(frozen=True, slots=True)
class FromCloud:
    """An event of the cloud that filters changed or dropped."""

    type: str
    result: DryRunResult


_EVENT_START = re.compile(rb'\{"type":"|(?s:.{4})\n[\x05-\x08](?:ADDED|MODIFIED|DELETED|BOOKMARK|ERROR)')
"""Pattern of the beginning of an event, in JSON or, after its length, in protobuf."""

type Event = tuple[float, WatchFrame | FromCloud]


class Display(NamedTuple):
    """Access of watches to the interface that shows their messages."""

    updated: Callable[[http.HTTPFlow], None]
    """Called when a flow has new messages."""
    total: ByteBudget
    """The budget of all watches."""
    visible: Visible = DEFAULT_VISIBILITY


class LiveWatch:
    """The stream function of one watch: passes each piece on, and shows its events."""

    def __init__(
        self,
        flow: http.HTTPFlow,
        codec: Codec,
        then: StreamFunction,
        display: Display,
        *,
        filtered: FilteredRead | None = None,
        is_joined: bool = False,
    ) -> None:
        """`filtered` gives access to the cloud's objects.

        `is_joined`: the watch was running before, so the next piece may begin within an event.
        """
        self._is_within = is_joined
        self._flow = flow
        self._codec = codec
        self.then = then
        self._display, self._total = display, display.total
        self._filtered = filtered
        self._reader: FrameReader | None = codec.frames()
        self._unfinished = 0
        self._waiting: deque[Event] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._heard: tuple[Store, Scope] | None = None
        self._data = flow.websocket = WebSocketData()
        self._listen()

    def __call__(self, piece: bytes) -> Iterable[bytes] | bytes:
        passed = self.then(piece) if callable(self.then) else piece
        parts = [passed] if isinstance(passed, bytes) else list(passed)
        for part in parts:
            self._read(part)
        return parts

    def end(self, *, by_client: bool) -> None:
        """Show the remaining events, and end the display."""
        if self._heard is not None:
            self._heard[0].forget(self)
            self._heard = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._show_next()
        self._data.closed_by_client, self._data.close_code = by_client, 1000
        self._data.timestamp_end = time.time()
        self._reader = None

    def messages(self) -> list[WebSocketMessage]:
        """Return and remove the messages so far."""
        taken, self._data.messages = self._data.messages, []
        self._count(-self._size)
        return taken

    def removed(self) -> None:
        """Release the budget: the flow was removed from the interface."""
        self._total.taken -= self._size
        self._size = 0

    def changed(self, change: Change) -> None:
        """Show an event of the cloud if filters change or drop it."""
        assert self._heard is not None
        assert self._filtered is not None
        item = change.new or change.last
        if item is None or change.new is None or change.is_local or not self._heard[1].matches(item):
            return
        result = self._filtered.dry_run(item)
        if result.outcome is not Outcome.KEPT:
            self._wait(FromCloud("ADDED" if change.old is None else "MODIFIED", result), len(item.raw))

    def advanced(self) -> None:
        """Do nothing: the watch itself contains the bookmarks to show."""

    def restarted(self) -> None:
        """Do nothing: the watch itself ends."""

    def _listen(self) -> None:
        if self._filtered is None or not self._filtered.filters:
            return
        opened = self._filtered.source()
        if opened is not None:
            source, scope = opened
            self._heard = (source.store, scope)
            source.store.listen(self)

    def _read(self, piece: bytes) -> None:
        if self._reader is None:
            return
        if self._is_within:
            if _EVENT_START.match(piece) is None:
                return
            self._is_within = False
        try:
            frames = self._reader.feed(piece)
        except ValueError as error:
            self._reader = None
            self._add(f"(no event can be read any more: {error})", is_cloud=False, at=time.time())
            return
        self._unfinished = 0 if frames else self._unfinished + len(piece)
        if self._unfinished > MAX_WAITING:
            self._reader = None
            self._add(
                "(an event is too large to be shown, and so are all after it)", is_cloud=False, at=time.time()
            )
        for frame in frames:
            self._wait(frame, len(frame.raw))

    def _wait(self, event: WatchFrame | FromCloud, size: int) -> None:
        self._waiting.append((time.time(), event))
        self._waiting_bytes += size
        while len(self._waiting) > MAX_EVENTS or (
            self._waiting_bytes > MAX_WAITING and len(self._waiting) > 1
        ):
            self._waiting_bytes -= _size_of(self._waiting.popleft()[1])
            self._left_out += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._show_some)

    def _show_some(self) -> None:
        self._timer = None
        for _ in range(min(DECODE_BATCH, len(self._waiting))):
            self._show_next()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._show_some)
        self._display.updated(self._flow)

    def _show_next(self) -> None:
        at, event = self._waiting.popleft()
        self._waiting_bytes -= _size_of(event)
        is_cloud = isinstance(event, FromCloud)
        try:
            if isinstance(event, FromCloud):
                text = self._from_cloud(event)
            else:
                is_short = len(event.raw) <= MAX_EVENT
                text = readable_event(self._codec, event, complete=is_short, visible=self._display.visible)
        except ValueError as error:
            text = f"(malformed: {error})\n"
        self._add(text, is_cloud=is_cloud, at=at)

    def _from_cloud(self, event: FromCloud) -> str:
        item = event.result.item
        head = {
            "type": event.type,
            "object": key_text(item.key),
            "resourceVersion": str(item.version),
            "bytes": len(item.raw),
            "outcome": str(event.result.outcome),
            "why": event.result.why,
        }
        if len(item.raw) <= MAX_EVENT:
            return as_yaml(head | {"content": item_tree(item, self._display.visible)})
        return as_yaml(head)

    def _add(self, text: str, *, is_cloud: bool, at: float) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at * 1000) % 1000:03}"
        side = "the cloud sent" if is_cloud else "the component got"
        left_out = f", after {self._left_out} that are not shown" if self._left_out else ""
        self._left_out = 0
        cut = (
            text
            if len(text) <= MAX_EVENT
            else text[:MAX_EVENT] + f"\n# and {len(text) - MAX_EVENT} characters\n"
        )
        content = NOTE + f"{clock} {side}{left_out}\n{cut}".encode()
        self._data.messages.append(WebSocketMessage(Opcode.TEXT, is_cloud, content, at))
        self._count(len(content))
        while len(self._data.messages) > 1 and (
            len(self._data.messages) > MAX_EVENTS or self._size > MAX_WATCH or self._total.is_overdrawn
        ):
            self._count(-len(self._data.messages.pop(0).content))

    def _count(self, size: int) -> None:
        self._size += size
        self._total.taken += size


def _size_of(event: WatchFrame | FromCloud) -> int:
    return len(event.result.item.raw) if isinstance(event, FromCloud) else len(event.raw)
