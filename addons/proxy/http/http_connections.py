"""mitmproxy's side of a client's connection of HTTP/2, changed for clients that stay for months.

A client may have many streams, and a connection forgets its ended streams. A stream's window opens again when the
server, or the hub, has taken what came through it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any

from h2.config import H2Configuration
from h2.connection import ConnectionState
from h2.events import Event
from h2.exceptions import DenialOfServiceError, FrameTooLargeError, ProtocolError
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import Frame, SettingsFrame
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection, SendH2Data

from addons.telemetry import metrics

STREAMS_PER_CLIENT = 1_000
"""Watches that one client connection may hold."""
MAX_FRAME = 128 * 1024
"""Bytes of a frame, as mitmproxy tells each peer."""
MAX_HEAD = 256 * 1024
"""Bytes of the frames of one head, as they come: as many as its headers may have when they are unpacked."""
LENGTH = 3
"""Bytes in which a frame begins with its length (RFC 9113, 4.1)."""
LONGEST_CODED = 2048
"""Bytes of a header's value up to which its head is packed by Huffman's code, which takes 0.5 ms then. A token of a
service account has some 1,200."""
MAX_TABLE = 4096
"""Bytes of the heads that a connection remembers to name them again: as many as a client allows that says nothing."""
SETTINGS = frozenset(SettingCodes)
"""Those that h2 knows."""
MAX_REMEMBERED = 1_000
"""Ended streams whose numbers a connection remembers."""
STREAM_WINDOW = 128 * 1024
"""Bytes that a client may send on a stream before the other side has taken any of them. It is near by: more would wait
here, not there."""
STREAM_UNREAD = 64 * 1024
"""Bytes that a stream may hold for a client, or a server, of HTTP/2 before the other side may send no more on it."""


class Backlog(deque[SendH2Data]):
    """What waits for a stream's window, and its size in bytes."""

    def __init__(self, backlogs: Backlogs) -> None:
        super().__init__()
        self.size = 0
        self._backlogs = backlogs

    def append(self, piece: SendH2Data) -> None:
        self._count(len(piece.data))
        super().append(piece)

    def appendleft(self, piece: SendH2Data) -> None:
        self._count(len(piece.data))
        super().appendleft(piece)

    def popleft(self) -> SendH2Data:
        piece = super().popleft()
        self._count(-len(piece.data))
        return piece

    def _count(self, size: int) -> None:
        self.size += size
        self._backlogs.size += size


class Backlogs(defaultdict[int, Backlog]):
    """The backlog of each stream of a connection, and what all of them have, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __missing__(self, stream: int) -> Backlog:
        backlog = self[stream] = Backlog(self)
        return backlog

    def __setitem__(self, stream: int, backlog: Backlog) -> None:
        self.size += backlog.size
        super().__setitem__(stream, backlog)

    def pop(self, stream: int, *default: Any) -> Any:
        """As `dict.pop`; what the backlog holds counts no longer."""
        backlog = super().pop(stream, *default)
        if isinstance(backlog, Backlog):
            self.size -= backlog.size
        return backlog

    def clear(self) -> None:
        super().clear()
        self.size = 0


class HeadEncoder(Encoder):
    """Sends a head with a long value as it is. hpack's time for Huffman's code is quadratic: 0.5 s for one of 60 KB.

    It remembers MAX_TABLE bytes of heads, also for a client that allows 4 GiB: hpack keeps them for the connection's
    life, and searches all of them for each field.
    """

    @property
    def header_table_size(self) -> int:
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self.header_table.maxsize = min(value, MAX_TABLE)
        if self.header_table.resized:
            # The next head names these two (RFC 7541, 4.2). hpack keeps all that a client has ever said.
            least = min([self.header_table.maxsize, *self.table_size_changes])
            self.table_size_changes[:] = [least, self.header_table.maxsize]

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        fields = list(headers)
        return super().encode(fields, huffman and all(len(field[1]) <= LONGEST_CODED for field in fields))


class SettingValues(list[int]):
    """The values of a setting, the one in force first. h2 has a deque of each, 760 bytes: 10 KB for a connection."""

    __slots__ = ()

    def popleft(self) -> int:
        return self.pop(0)


class HubH2Connection(BufferedH2Connection):
    """Allows a client a stream for each of its watches (mitmproxy: 100).

    mitmproxy gives every stream a window of 2 GiB and acknowledges data as it comes. Here a stream has STREAM_WINDOW,
    and `open_windows` acknowledges what the other side has taken: until then the peer waits, and no other stream does.
    """

    MAX_CLOSED_STREAMS = MAX_REMEMBERED

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.encoder = HeadEncoder()
        self.local_settings.max_concurrent_streams = STREAMS_PER_CLIENT
        self.local_settings.initial_window_size = STREAM_WINDOW
        self.local_settings.acknowledge()
        for settings in (self.local_settings, self.remote_settings):
            for code, values in settings._settings.items():
                settings._settings[code] = SettingValues(values)  # type: ignore[assignment]  # has all that h2 calls
        self._has_wider_window = False
        self._untaken: Counter[int] = Counter()
        self._backlogs = Backlogs()
        self.stream_buffers = self._backlogs  # type: ignore[assignment]  # each is a deque, as mitmproxy's own

    @property
    def unread(self) -> int:
        """Bytes that wait until the other side has room for them."""
        return self._backlogs.size

    @property
    def least_read(self) -> int | None:
        """The stream for which most waits; None where nothing does."""
        return max(self._backlogs, key=self.unread_on, default=None)

    def unread_on(self, stream: int) -> int:
        backlog = self._backlogs.get(stream)
        return backlog.size if backlog is not None else 0

    @property
    def untaken(self) -> Mapping[int, int]:
        """By stream, the bytes that came and are not acknowledged yet."""
        return self._untaken

    def acknowledge_received_data(self, acknowledged_size: int, stream_id: int) -> None:
        """Remember what came: mitmproxy calls this before the other side has taken anything."""
        self._untaken[stream_id] += acknowledged_size

    def open_windows(self, streams: Iterable[int]) -> bytes:
        """Acknowledge all that came on these streams; what tells the peer so."""
        is_closed = self.state_machine.state is ConnectionState.CLOSED
        for stream in streams:
            size = self._untaken.pop(stream)
            if not is_closed:
                super().acknowledge_received_data(size, stream)
        return self.data_to_send()

    def let_go(self) -> None:
        """Drop what waits for the other side, and h2's methods, which refer to the connection: it has ended."""
        self._backlogs.clear()
        self.clear_outbound_data_buffer()
        self._frame_dispatch_table.clear()

    def receive_data(self, data: bytes) -> list[Event]:
        events: list[Event] = super().receive_data(data)
        if self._has_wider_window:
            self._has_wider_window = False
            super().connection_window_updated()
        try:
            self._check_incoming()
        except ProtocolError:
            metrics.CONNECTIONS_REFUSED.labels("frame").inc()
            raise
        return events

    def _receive_settings_frame(self, frame: SettingsFrame) -> tuple[list[Frame], list[Event]]:
        """Leave out what no side knows (RFC 9113, 6.5.2). h2 keeps it: 65,000 settings, 400 KB, were 56 MB."""
        frame.settings = {code: value for code, value in frame.settings.items() if code in SETTINGS}
        return super()._receive_settings_frame(frame)

    def connection_window_updated(self) -> None:
        """Remember to look at all streams once, behind the last of what came. mitmproxy does so at each frame.

        A packet of 13 KB that told 900 streams of their windows took 0.9 s of the event loop.
        """
        self._has_wider_window = True

    def _check_incoming(self) -> None:
        """ProtocolError where the frame that has begun to come, or the head so far, has more bytes than it may have.

        h2 looks at the size of a frame when all of the frame has come, and at that of a head when its last frame has.
        Until then h2 holds the bytes: 16 MiB of a frame, and 64 frames of a head, for each connection.
        """
        waiting = self.incoming_buffer._data
        length = int.from_bytes(waiting[:LENGTH]) if len(waiting) >= LENGTH else 0
        if length > MAX_FRAME:
            raise FrameTooLargeError(f"a frame of {length} bytes, more than {MAX_FRAME}")
        head = sum(len(frame.data) for frame in self.incoming_buffer._headers_buffer)
        if head > MAX_HEAD:
            raise DenialOfServiceError(f"a head of more than {MAX_HEAD} bytes")


class OwnMethod:
    """An attribute whose value is a method of its own object. It keeps the function alone: a method is a cycle."""

    def __init__(self, first: Callable[..., Any] | None = None) -> None:
        """`first` is the function until another one is set."""
        self._first = first

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> MethodType:
        return MethodType(vars(instance).get(self._name, self._first), instance)

    def __set__(self, instance: Any, method: MethodType) -> None:
        vars(instance)[self._name] = method.__func__
