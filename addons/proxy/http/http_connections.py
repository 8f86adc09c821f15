"""mitmproxy's side of a client's connection of HTTP/2, changed for clients that stay for months.

A client may have many streams, and a connection forgets its ended streams. A stream's window opens again when the
server, or the hub, has taken what came through it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any

from h2.config import H2Configuration
from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.events import Event
from h2.settings import SettingCodes
from h2.stream import StreamState
from hyperframe.frame import Frame, SettingsFrame
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from addons.requests.exchange.http2_buffers import Backlogs, HeadEncoder, SettingValues, check_incoming

STREAMS_PER_CLIENT = 1_000
"""Watches that one client connection may hold."""
SETTINGS = frozenset(SettingCodes)
"""Those that h2 knows."""
MAX_REMEMBERED = 1_000
"""Ended streams whose numbers a connection remembers."""
STREAM_WINDOW = 128 * 1024
"""Bytes that a client may send on a stream before the other side has taken any of them. It is near by: more would wait
here, not there."""
OF_A_STREAM = 4 * 1024
"""Bytes that a stream counts whose answer waits for a window, beside those of the answer: h2 keeps as much of it."""
STREAM_UNREAD = 64 * 1024
"""Bytes that a stream may hold for a client, or a server, of HTTP/2 before the other side may send no more on it."""


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
        self._answered: set[int] = set()
        """Streams whose answer has been given to the end, and waits for a window or for `data_to_send`."""
        self._untaken: Counter[int] = Counter()
        self._backlogs = Backlogs()
        self.stream_buffers = self._backlogs  # type: ignore[assignment]  # each is a deque, as mitmproxy's own

    @property
    def unread(self) -> int:
        """Bytes that wait until the other side has room for them, with what the hub keeps of their streams."""
        return self._backlogs.size + len(self._backlogs) * OF_A_STREAM

    @property
    def least_read(self) -> list[int]:
        """The streams for which something waits, those with most of it first."""
        return sorted(self._backlogs, key=self.unread_on, reverse=True)

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

    def send_data(self, stream_id: int, data: Any, end_stream: bool = False, pad_length: Any = None) -> None:
        super().send_data(stream_id, data, end_stream, pad_length)
        if end_stream:
            self._answered.add(stream_id)

    def send_headers(
        self,
        stream_id: int,
        headers: Iterable[Any],
        end_stream: bool = False,
        priority_weight: int | None = None,
        priority_depends_on: int | None = None,
        priority_exclusive: bool | None = None,
    ) -> None:
        priority = (priority_weight, priority_depends_on, priority_exclusive)
        super().send_headers(stream_id, headers, end_stream, *priority)
        if end_stream:
            self._answered.add(stream_id)

    def data_to_send(self, amount: int | None = None) -> bytes:
        """As h2, and the end of each request that still comes although its answer has gone (RFC 9113, 8.1).

        Its stream would stay as long as the client says no more, and no bound on requests counts it.
        """
        if self.state_machine.state is ConnectionState.CLOSED:
            self._answered.clear()
        for number in [number for number in self._answered if number not in self._backlogs]:
            self._answered.remove(number)
            stream = self.streams.get(number)
            if stream is not None and stream.state_machine.state is StreamState.HALF_CLOSED_LOCAL:
                self.reset_stream(number, ErrorCodes.NO_ERROR)
        return super().data_to_send(amount)

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
        check_incoming(self.incoming_buffer)
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


class OwnMethod:
    """An attribute whose value is a method of its own object. It keeps the function alone: a method is a cycle."""

    def __init__(self, first: Callable[..., Any] | None = None) -> None:
        """`first` is the function until another one is set."""
        self._first = first

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> MethodType:
        return MethodType(instance.__dict__.get(self._name, self._first), instance)

    def __set__(self, instance: Any, method: MethodType) -> None:
        instance.__dict__[self._name] = method.__func__
