"""mitmproxy's HTTP connections for clients that stay for months: many streams, little memory, ends in good order."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event
from mitmproxy.proxy import layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers.http import _http2
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, RequestHeaders, ResponseProtocolError
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.http._http2 import Http2Client
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

if TYPE_CHECKING:
    from hyperframe.frame import Frame, GoAwayFrame

STREAMS_PER_CLIENT = 1_000
"""Watches that one client connection may hold."""
MAX_REMEMBERED = 1_000
"""Ended streams whose numbers a connection remembers."""


class LastingH2Connection(BufferedH2Connection):
    """Lets a client have as many streams as it has watches (mitmproxy: 100), and takes a server's farewell for one.

    h2 itself would hear nothing more after a GOAWAY, though it says that streams which the server knows go on
    (RFC 9113, 6.8). kube-apiserver sends one to share clients out (`--goaway-chance`), and when it is going to end.
    """

    MAX_CLOSED_STREAMS = MAX_REMEMBERED

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.local_settings.max_concurrent_streams = STREAMS_PER_CLIENT
        self.local_settings.acknowledge()

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code != ErrorCodes.NO_ERROR:
            return super()._receive_goaway_frame(frame)
        farewell = ConnectionTerminated()
        farewell.error_code, farewell.last_stream_id = ErrorCodes.NO_ERROR, frame.last_stream_id
        return [], [farewell]


class LastingHttp2Client(Http2Client):
    """An upstream connection whose server may say farewell: it takes no more streams, and ends with the last one."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.is_leaving = False

    @property
    def limit(self) -> int | None:
        """How many streams the server takes at once; None as long as it has not said."""
        settled = self.provisional_max_concurrency is None
        return int(self.h2_conn.remote_settings.max_concurrent_streams) if settled else None

    @property
    def open_streams(self) -> int:
        """Those that wait for room, too."""
        return int(self.h2_conn.open_outbound_streams) + len(self.stream_queue)

    def forget(self, alive: Collection[int]) -> None:
        """mitmproxy keeps for good which of a client's streams became which of the server's."""
        if len(self.our_stream_id) < 2 * MAX_REMEMBERED:
            return
        for theirs, ours in list(self.our_stream_id.items()):
            if theirs not in alive and ours not in self.streams:
                del self.our_stream_id[theirs], self.their_stream_id[ours]

    def handle_h2_event(self, event: Event) -> layer.CommandGenerator[bool]:
        farewell = isinstance(event, ConnectionTerminated) and event.error_code == ErrorCodes.NO_ERROR
        if not farewell or self.stream_queue:
            return (yield from super().handle_h2_event(event))
        self.is_leaving = True
        assert isinstance(event, ConnectionTerminated)
        for stream in [each for each in self.streams if each > (event.last_stream_id or 0)]:
            del self.streams[stream]
            why = "the server takes no more requests on this connection"
            yield ReceiveHttp(ResponseProtocolError(stream, why, ErrorCode.GENERIC_SERVER_ERROR))
        return False


class KeptHttp1Client(Http1Client):
    """An upstream connection that goes on after a request of HTTP/2, as it does after one of HTTP/1.1."""

    def send(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        yield from super().send(event)
        if isinstance(event, RequestHeaders) and self.request is not None:
            # By this mitmproxy decides whether the connection is done with the answer.
            self.request = self.request.copy()
            self.request.http_version = "HTTP/1.1"


def install() -> None:
    """Let mitmproxy make connections of these kinds."""
    vars(_http2)["BufferedH2Connection"] = LastingH2Connection
    vars(http_layers)["Http2Client"] = LastingHttp2Client
    vars(http_layers)["Http1Client"] = KeptHttp1Client
