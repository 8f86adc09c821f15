"""mitmproxy's HTTP connections, changed for clients that stay for months.

A client may have many streams, a connection forgets its ended streams, and a server's GOAWAY breaks off no stream. A
stream's window opens again when the other side has taken what came through it. A request gets its credentials here, at
the last moment: its flow, which people may see, has none.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MethodType
from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, ResponseReceived, StreamReset
from h2.exceptions import ProtocolError
from mitmproxy.connection import Connection
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.commands import CloseConnection, SendData
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestHeaders,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client, make_body_reader
from mitmproxy.proxy.layers.http._http2 import Http2Client, StreamState
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection, SendH2Data

from addons.proxy.http.messages import downgraded, response_of_fields, response_of_lines
from addons.proxy.http.request_bodies import CHUNK_LINE_TOO_LONG, MAX_CHUNK_LINE
from addons.proxy.http.request_head import as_http1
from addons.requests.hidden_credentials import with_credentials
from addons.telemetry import metrics
from kube.http.transport.http2_frames import HeadEncoder, check_incoming

if TYPE_CHECKING:
    from hyperframe.frame import Frame, GoAwayFrame

STREAMS_PER_CLIENT = 1_000
"""Watches that one client connection may hold."""
MAX_FRAME = 128 * 1024
"""Bytes of a frame, as mitmproxy tells each peer."""
MAX_HEAD = 256 * 1024
"""Bytes of the frames of one head, as they come: as many as its headers may have when they are unpacked."""
MAX_REMEMBERED = 1_000
"""Ended streams whose numbers a connection remembers."""
STREAM_WINDOW = 512 * 1024
"""Bytes that a peer may send on a stream before the other side has taken any of them; Go's own server allows 1 MiB."""
STREAM_UNREAD = 64 * 1024
"""Bytes that a stream may hold for a client, or a server, of HTTP/2 before the other side may send no more on it."""
BEHIND = 160 * 1024
"""Bytes that wait behind a stream that holds as much: in mitmproxy's reader, and in the buffers of a socket."""


class Backlog(deque[SendH2Data]):
    """What waits for a stream's window, and its size in bytes."""

    def __init__(self, backlogs: Backlogs) -> None:
        super().__init__()
        self.size = 0
        self._backlogs = backlogs

    @property
    def held(self) -> int:
        """Bytes that the hub holds for the stream, with those behind it."""
        return self.size + (BEHIND if self.size >= STREAM_UNREAD else 0)

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
        held = self.held
        self.size += size
        self._backlogs.size += size
        self._backlogs.held += self.held - held


class Backlogs(defaultdict[int, Backlog]):
    """The backlog of each stream of a connection; what all of them have, and what the hub holds for them, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.held = 0

    def __missing__(self, stream: int) -> Backlog:
        backlog = self[stream] = Backlog(self)
        return backlog

    def __setitem__(self, stream: int, backlog: Backlog) -> None:
        self.size += backlog.size
        self.held += backlog.held
        super().__setitem__(stream, backlog)

    def pop(self, stream: int, *default: Any) -> Any:
        """As `dict.pop`; what the backlog holds counts no longer."""
        backlog = super().pop(stream, *default)
        if isinstance(backlog, Backlog):
            self.size -= backlog.size
            self.held -= backlog.held
        return backlog

    def clear(self) -> None:
        super().clear()
        self.size = self.held = 0


class HubH2Connection(BufferedH2Connection):
    """Allows a client a stream for each of its watches (mitmproxy: 100), and reads on after a GOAWAY without an error.

    h2 itself reads nothing after a GOAWAY, although streams up to its last id go on (RFC 9113, 6.8). kube-apiserver
    sends GOAWAY to spread its clients over servers (`--goaway-chance`), and before it shuts down.

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
        self._untaken: Counter[int] = Counter()
        self._backlogs = Backlogs()
        self.stream_buffers = self._backlogs  # type: ignore[assignment]  # each is a deque, as mitmproxy's own

    @property
    def unread(self) -> int:
        """Bytes that wait until the other side has room for them."""
        return self._backlogs.size

    @property
    def held(self) -> int:
        """Bytes that the hub holds because the other side does not take them: those, and what waits behind them."""
        return self._backlogs.held

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
        try:
            check_incoming(self, MAX_FRAME, MAX_HEAD)
        except ProtocolError:
            metrics.CONNECTIONS_REFUSED.labels("frame").inc()
            raise
        return events

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code != ErrorCodes.NO_ERROR:
            return super()._receive_goaway_frame(frame)
        goaway = ConnectionTerminated()
        goaway.error_code, goaway.last_stream_id = ErrorCodes.NO_ERROR, frame.last_stream_id
        return [], [goaway]


@dataclass
class StreamsTaken(HttpEvent):
    """All that came on these streams of a connection of HTTP/2 has been taken: their windows may open again."""

    streams: list[int]


def open_windows(
    h2_conn: HubH2Connection, conn: Connection, event: StreamsTaken
) -> layer.CommandGenerator[None]:
    """Tell the peer of the connection that it may send on."""
    data = h2_conn.open_windows(event.streams)
    if data:
        yield SendData(conn, data)


class HubHttp2Client(Http2Client):
    """An upstream connection that outlives its server's GOAWAY: it takes no new streams, and the open ones go on."""

    h2_conn: HubH2Connection

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.h2_conn = HubH2Connection(self.h2_conf)
        self.h2_conn.local_settings.enable_push = 0
        self.h2_conn.local_settings.acknowledge()
        self.is_leaving = False

    @property
    def limit(self) -> int | None:
        """How many streams the server takes at once; None until its SETTINGS arrive."""
        settled = self.provisional_max_concurrency is None
        return int(self.h2_conn.remote_settings.max_concurrent_streams) if settled else None

    @property
    def open_streams(self) -> int:
        """The open streams, and those that wait until the server has room."""
        return int(self.h2_conn.open_outbound_streams) + len(self.stream_queue)

    def forget(self, alive: Collection[int]) -> None:
        """Drop the stream numbers of ended streams; mitmproxy maps the client's to the server's for good.

        `alive` are the client's streams that go on.
        """
        if len(self.our_stream_id) < 2 * MAX_REMEMBERED:
            return
        for theirs, ours in list(self.our_stream_id.items()):
            if theirs not in alive and ours not in self.streams:
                del self.our_stream_id[theirs], self.their_stream_id[ours]

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, StreamsTaken):
            yield from open_windows(self.h2_conn, self.conn, event)
            return
        if isinstance(event, RequestHeaders):
            event = replace(event, request=with_credentials(event.request))
        yield from super()._handle_event(event)

    def unread_of(self, stream: int) -> int:
        """Bytes of the request of a client's stream that the server has no room for."""
        if stream in self.stream_queue:  # it waits for a stream of the server's
            return sum(len(each.data) for each in self.stream_queue[stream] if isinstance(each, RequestData))
        ours = self.our_stream_id.get(stream)
        return self.h2_conn.unread_on(ours) if ours is not None else 0

    def handle_h2_event(self, event: Event) -> layer.CommandGenerator[bool]:
        if isinstance(event, ConnectionTerminated) and event.error_code == ErrorCodes.NO_ERROR:
            yield from self._stop_at(event.last_stream_id or 0)
            return False
        if isinstance(event, ResponseReceived) and (
            self.streams.get(event.stream_id) is StreamState.EXPECTING_HEADERS
        ):
            try:
                response = response_of_fields(event.headers)
            except ValueError as error:
                yield from self.protocol_error(f"the head of the answer is malformed: {error}")
                return True
            self.streams[event.stream_id] = StreamState.HEADERS_RECEIVED
            yield ReceiveHttp(ResponseHeaders(event.stream_id, response, bool(event.stream_ended)))
            return False
        if isinstance(event, StreamReset) and event.error_code == ErrorCodes.REFUSED_STREAM:
            if event.stream_id in self.streams:
                yield from self._give_back(event.stream_id)
            return False
        return (yield from super().handle_h2_event(event))

    def _stop_at(self, last: int) -> layer.CommandGenerator[None]:
        """Take no more streams, and give back those that the server did not and will not process."""
        self.is_leaving = True
        for stream in [each for each in self.streams if each > last]:
            yield from self._give_back(stream)
        for theirs in list(self.stream_queue):
            del self.stream_queue[theirs]
            # mitmproxy translates the number of a stream on its way back; this one never had one of ours.
            self.their_stream_id[-theirs] = theirs
            yield ReceiveHttp(StreamNotProcessed(-theirs))
            del self.their_stream_id[-theirs]

    def _give_back(self, stream: int) -> layer.CommandGenerator[None]:
        """End a stream of ours; the client's stream may become another one, on this connection or on another."""
        del self.streams[stream], self.our_stream_id[self.their_stream_id[stream]]
        yield ReceiveHttp(StreamNotProcessed(stream))
        del self.their_stream_id[stream]


class StreamNotProcessed(ResponseProtocolError):
    """The server has done nothing about this request, and says so: it may be sent again (RFC 9113, 8.7)."""

    def __init__(self, stream_id: int) -> None:
        super().__init__(
            stream_id, "the server takes no more requests on this connection", ErrorCode.GENERIC_SERVER_ERROR
        )


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


class HubHttp1Client(Http1Client):
    """An upstream connection that is kept after a request of HTTP/2, as it is after one of HTTP/1.1."""

    state: Any = OwnMethod(Http1Client.start)

    def send(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        if isinstance(event, RequestHeaders):
            sent = as_http1(with_credentials(event.request), has_body=not event.end_stream)
            # mitmproxy would close the connection after the answer to a request of HTTP/2.
            event = replace(event, request=downgraded(sent) if sent.is_http2 else sent)
        yield from super().send(event)

    def read_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        try:
            yield from super().read_body(event)
        except NotImplementedError:  # mitmproxy's word for trailers, which a proxy may drop (RFC 9110, 6.5.1)
            assert self.stream_id is not None
            yield ReceiveHttp(ResponseEndOfMessage(self.stream_id))
            yield from self.mark_done(response=True)
            return
        if self.state == self.read_body and len(self.buf) > MAX_CHUNK_LINE:
            yield from self._end(CHUNK_LINE_TOO_LONG)

    def read_headers(self, event: events.ConnectionEvent) -> layer.CommandGenerator[None]:
        if self.request is None or self.stream_id is None or not isinstance(event, events.DataReceived):
            yield from super().read_headers(event)
            return
        lines = self.buf.maybe_extract_lines()
        if not lines:
            if len(self.buf) > MAX_HEAD:
                yield from self._end("the head of the answer is too long")
            return
        try:
            self.response = response_of_lines([bytes(each) for each in lines])
            size = expected_http_body_size(self.request, self.response)
        except ValueError as error:
            yield CloseConnection(self.conn)
            message = f"the head of the answer is malformed: {error}"
            yield ReceiveHttp(ResponseProtocolError(self.stream_id, message, ErrorCode.GENERIC_SERVER_ERROR))
            return
        yield ReceiveHttp(ResponseHeaders(self.stream_id, self.response, size == 0))
        self.body_reader = make_body_reader(size)
        self.state = self.read_body
        yield from self.read_body(event)

    def _end(self, why: str) -> layer.CommandGenerator[None]:
        """End a connection whose server sends a line without end."""
        assert self.stream_id is not None
        metrics.CONNECTIONS_REFUSED.labels("frame").inc()
        self.buf.maybe_extract_at_most(len(self.buf))
        yield CloseConnection(self.conn)
        yield ReceiveHttp(ResponseProtocolError(self.stream_id, why, ErrorCode.GENERIC_SERVER_ERROR))
        self.state = self.done
