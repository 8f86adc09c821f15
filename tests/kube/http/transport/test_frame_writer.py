"""Send queues for a slow server, and their order: no request waits for another one's body."""

from __future__ import annotations

from hpack import Decoder
from hyperframe.frame import DataFrame, Frame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame

from kube.http.transport.frame_writer import MAX_UNWRITTEN, WRITE_BATCH
from kube.http.transport.http2_connection import Http2Connection
from kube.http.transport.response_sink import ResponseSink
from tests.kube.support.sink import Sink, connected, fields


class Filling(Sink):
    """The transport of a server that has stopped reading: it pauses once anything is buffered."""

    def __init__(self, made: Http2Connection) -> None:
        super().__init__()
        self.made = made
        self.most = 0
        made.connection_made(self)
        self.take()
        made.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.most = max(self.most, self.get_write_buffer_size())
        self.made.pause_writing()

    def frames(self) -> list[Frame]:
        found, taken = [], self.take()
        while taken:
            frame, length = Frame.parse_frame_header(memoryview(taken[:9]))
            frame.parse_body(memoryview(taken[9 : 9 + length]))
            found.append(frame)
            taken = taken[9 + length :]
        return found


async def test_a_request_cancelled_before_it_is_sent_is_never_sent() -> None:
    """Requests of 60 KB that were opened and cancelled once filled the memory while a slow link sent the first."""

    def paths(decoder: Decoder, frames: list[Frame]) -> list[str]:
        heads = [
            dict(decoder.decode(each.data, raw=True)) for each in frames if isinstance(each, HeadersFrame)
        ]
        return [each[b":path"].decode() for each in heads]

    made = Http2Connection()
    sink, decoder = Filling(made), Decoder()
    first, last = ResponseSink(), ResponseSink()
    made.send(fields("/first"), b"", first)
    for _ in range(10):
        taken_back = ResponseSink()
        made.send([*fields("/back"), (b"x", bytes(60_000))], b"", taken_back)
        made.release(taken_back)
    made.send(fields("/last"), b"", last)
    assert sink.most < WRITE_BATCH
    assert paths(decoder, sink.frames()) == ["/first"]
    made.resume_writing()
    assert paths(decoder, sink.frames()) == ["/last"]
    made.connection_lost(None)
    assert (first.error is None, last.error is None) == (False, False)


async def test_a_body_that_ends_before_its_headers_are_sent_is_complete() -> None:
    made = Http2Connection()
    sink = Filling(made)
    made.send(fields("/"), b"", ResponseSink())
    sink.take()
    for pieces in ([], [b"abc"], [b"abc", b"def"]):
        response = ResponseSink()
        made.send(fields("/", "POST"), b"", response, is_complete=False)
        for each in pieces:
            made.send_more(response, each, is_last=False)
        made.send_more(response, b"", is_last=True)
        made.resume_writing()
        frames = sink.frames()
        assert b"".join(each.data for each in frames if isinstance(each, DataFrame)) == b"".join(pieces)
        assert "END_STREAM" in [each for each in frames if not isinstance(each, WindowUpdateFrame)][-1].flags
        made.resume_writing()
    made.connection_lost(None)


async def test_bodies_are_sent_alternately() -> None:
    """A lease renewal once waited until a server with a small window had accepted all of an upload."""
    made, _ = connected(Http2Connection)
    upload, lease = ResponseSink(), ResponseSink()
    made.data_received(SettingsFrame(0, {4: 2**20}).serialize())
    made.send(fields("/upload", "POST"), bytes(2**20), upload)
    made.send(fields("/lease", "PUT"), bytes(400), lease)
    assert made.unsent(lease) == 400
    made.data_received(WindowUpdateFrame(0, window_increment=1000).serialize())
    made.data_received(WindowUpdateFrame(0, window_increment=1000).serialize())
    assert made.unsent(lease) == 0
    made.connection_lost(None)


async def test_data_written_at_once_is_bounded_by_the_socket() -> None:
    """Otherwise a lease renewal waits for all uploads that fit into the server's windows, minutes on a slow link."""
    made = Http2Connection()
    sink = Filling(made)
    made.data_received(SettingsFrame(0, {4: 2**20}).serialize())
    made.data_received(WindowUpdateFrame(0, window_increment=2**30).serialize())
    for _ in range(10):
        made.send(fields("/upload", "POST"), bytes(2**20), ResponseSink())
    sink.take()
    sink.most = 0
    made.resume_writing()
    assert 0 < sink.most <= 2 * WRITE_BATCH
    made.connection_lost(None)


async def test_the_connection_of_a_server_that_pings_and_does_not_read_is_closed(reached: list[str]) -> None:
    made, response = Http2Connection(), ResponseSink()
    sink, pings = Filling(made), PingFrame(0, bytes(8)).serialize() * 1000
    made.send(fields("/"), b"", response)
    while not sink.is_gone:
        made.data_received(pings)
        assert sink.most < MAX_UNWRITTEN + 2 * len(pings)
    assert response.error is not None
    assert reached == ["what a server leaves unread"]
    made.connection_lost(None)
