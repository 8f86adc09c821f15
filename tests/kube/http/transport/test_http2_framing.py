"""Frames that HTTP/2 does not allow: the response or the connection is aborted, and no request waits."""

from __future__ import annotations

from typing import Any

import pytest
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from kube.http.transport.http2_connection import Http2Connection
from kube.http.transport.http2_framing import MAX_HEAD, MAX_PARTS
from kube.http.transport.http2_stream import RequestedStream
from kube.http.transport.response_head import MAX_FIELDS
from kube.http.transport.response_sink import FIRST_WINDOW, ResponseSink
from tests.kube.support.sink import Sink, connected, fields


def head(*fields: tuple[str, str], flags: tuple[str, ...] = ("END_HEADERS",), stream: int = 1) -> bytes:
    return HeadersFrame(stream, Encoder().encode(list(fields)), flags=list(flags)).serialize()


def data(body: bytes, *, end: bool = False) -> bytes:
    return DataFrame(1, body, flags=["END_STREAM"] if end else []).serialize()


OK = head((":status", "200"))
OF_THREE = head((":status", "200"), ("content-length", "3"))
COMPLETE = ("END_HEADERS", "END_STREAM")

OF_THE_STREAM = {
    "a body before its head": data(b"x"),
    "a head without a status": head(("a", "b")),
    "a status that is none": head((":status", "two")),
    "a switch to another protocol": head((":status", "101")),
    "an interim head alone": head((":status", "100"), flags=COMPLETE),
    "a second head": OK + head((":status", "200")),
    "a status behind a body": OK + head((":status", "200"), flags=COMPLETE),
    "more fields than a head may have": head((":status", "200"), *[("a", "")] * (MAX_FIELDS + 1)),
    "a name in capitals": head((":status", "200"), ("Server", "x")),
    "the end of a line in a value": head((":status", "200"), ("a", "b\r\nc: d")),
    "a header of a connection": head((":status", "200"), ("transfer-encoding", "chunked")),
    "two lengths": head((":status", "200"), ("content-length", "3"), ("content-length", "4")),
    "a length that is none": head((":status", "200"), ("content-length", "-3")),
    "a body that is longer": OF_THREE + data(b"four"),
    "a body that is shorter": OF_THREE + data(b"xx", end=True),
    "a head that promises a body, and ends": head(
        (":status", "200"), ("content-length", "3"), flags=COMPLETE
    ),
    "a body that no answer of its status has": head((":status", "204")) + data(b"HTTP/1.1 200 OK"),
    "a window of nothing more": OK + WindowUpdateFrame(1, window_increment=1).serialize()[:-1] + b"\0",
    "a window that is too large": OK + WindowUpdateFrame(1, window_increment=2**31 - 1).serialize(),
    "an end": RstStreamFrame(1, error_code=2).serialize(),
}
OF_THE_CONNECTION = {
    "a stream that nobody opened": head((":status", "200"), stream=3),
    "a stream of the server's": head((":status", "200"), stream=2),
    "a stream of none": data(b"").replace(b"\0\0\0\1", b"\0\0\0\0"),
    "a push": PushPromiseFrame(1, 2, Encoder().encode([(":path", "/")]), flags=["END_HEADERS"]).serialize(),
    "another frame within a head": head((":status", "200"), flags=()) + PingFrame(0, bytes(8)).serialize(),
    "a head that goes on and has not begun": ContinuationFrame(1, b"x", flags=["END_HEADERS"]).serialize(),
    "a head in a thousand parts": head((":status", "200"), flags=())
    + (MAX_PARTS + 1) * ContinuationFrame(1, b"").serialize(),
    "a longer head in one frame": HeadersFrame(1, bytes(MAX_HEAD + 1), flags=["END_HEADERS"]).serialize(),
    "a head that cannot be unpacked": HeadersFrame(
        1, b"\xff\xff\xff\xff\xff\xff", flags=["END_HEADERS"]
    ).serialize(),
    "padding that is longer than its frame": b"\0\0\2\0\x08\0\0\0\1\x09x",
    "more than the window": OK + 5 * data(bytes(FIRST_WINDOW // 4)),
    "settings in pieces": SettingsFrame(0, {4: 1}).serialize().replace(b"\0\0\6", b"\0\0\5")[:-1],
    "a window of the connection that is too large": WindowUpdateFrame(
        0, window_increment=2**31 - 1
    ).serialize(),
    "a ping of another size": b"\0\0\1\6\0\0\0\0\0x",
    "an end of another size": b"\0\0\1\3\0\0\0\0\1x",
    "a window larger than any": SettingsFrame(0, {4: 2**31}).serialize(),
    "frames of no size": SettingsFrame(0, {5: 1}).serialize(),
}


class RecordingSink(ResponseSink):
    def __init__(self) -> None:
        self.body = b""

    def add(self, piece: bytes, size: int) -> None:
        self.body += piece


def sent_request(method: str = "GET") -> tuple[Http2Connection, Sink, RecordingSink]:
    (made, sink), heard = connected(Http2Connection), RecordingSink()
    made.send(fields(method=method), b"", heard)
    sink.take()
    made.data_received(SettingsFrame(0, {}).serialize())
    return made, sink, heard


@pytest.mark.parametrize("fault", [*OF_THE_STREAM, *OF_THE_CONNECTION])
@pytest.mark.parametrize("step", [1, 2**20])
async def test_a_malformed_response_is_aborted_with_the_connection_if_required(fault: str, step: int) -> None:
    made, sink, heard = sent_request()
    sent = (OF_THE_STREAM | OF_THE_CONNECTION)[fault]
    for at in range(0, len(sent), step):
        made.data_received(sent[at : at + step])
    assert heard.error is not None
    assert (made.is_open, sink.is_gone) == (fault in OF_THE_STREAM, fault in OF_THE_CONNECTION)
    made.connection_lost(None)


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (head((":status", "100")) + OK + data(b"x", end=True), b"x"),
        (OK + data(b"x") + head(("grpc-status", "0"), flags=COMPLETE), b"x"),
        (OF_THREE + data(b"x") + data(b"yz", end=True), b"xyz"),
        (head((":status", "304"), ("content-length", "3"), flags=COMPLETE), b""),
        (OK + DataFrame(1, b"x", pad_length=9, flags=["PADDED", "END_STREAM"]).serialize(), b"x"),
        (OK + Frame.serialize(PingFrame(0, bytes(8))) + b"\0\0\0\x16\0\0\0\0\1" + data(b"", end=True), b""),
    ],
    ids=["interim head", "trailers", "length", "not modified", "padding", "unknown frames"],
)
async def test_valid_responses_are_accepted(sent: bytes, body: bytes) -> None:
    made, _, heard = sent_request()
    made.data_received(sent)
    assert (heard.error, heard.has_ended, heard.body) == (None, True, body)
    made.connection_lost(None)


async def test_a_response_to_head_has_a_length_and_no_body() -> None:
    made, _, heard = sent_request("HEAD")
    made.data_received(head((":status", "200"), ("content-length", "3"), flags=COMPLETE))
    assert (heard.error, heard.has_ended) == (None, True)
    made.connection_lost(None)


async def test_window_updates_are_sent_as_data_is_consumed() -> None:
    made, sink, heard = sent_request()
    made.data_received(OK + 2 * data(bytes(16_000)))
    made.acknowledge_data(heard, 32_000)
    assert sink.take().endswith(SettingsFrame(0, {}, flags=["ACK"]).serialize()), "the half is not yet taken"
    made.data_received(data(bytes(16_000)))
    made.acknowledge_data(heard, 16_000)
    more = heard.max_unread - (FIRST_WINDOW - 48_000)
    assert sink.take() == WindowUpdateFrame(1, window_increment=more).serialize()
    made.connection_lost(None)


async def test_a_body_is_sent_within_the_windows_of_stream_connection_and_socket() -> None:
    made, sink, _ = sent_request()
    heard = RecordingSink()
    made.send(fields(method="POST"), b"", heard, is_complete=False)
    made.send_more(heard, bytes(2**16), is_last=False)
    assert made.unsent(heard) == 1
    made.data_received(WindowUpdateFrame(0, window_increment=9).serialize())
    assert made.unsent(heard) == 1, "the stream has no room"
    sink.take()
    made.pause_writing()
    made.data_received(WindowUpdateFrame(3, window_increment=9).serialize())
    assert made.unsent(heard) == 1, "the socket has none"
    made.resume_writing()
    assert made.unsent(heard) == 0
    made.send_more(heard, b"", is_last=True)
    assert (
        sink.take() == DataFrame(3, b"\0").serialize() + DataFrame(3, b"", flags=["END_STREAM"]).serialize()
    )
    made.connection_lost(None)


@pytest.mark.parametrize(
    "said", [SettingsFrame(0, {4: 9}).serialize(), GoAwayFrame(0, last_stream_id=1).serialize()]
)
async def test_repeated_frames_do_not_iterate_over_all_streams(said: bytes) -> None:
    """64 KiB of such frames once took 0.3 s with a thousand streams."""

    class Streams(dict[int, RequestedStream]):
        looks = 0

        def values(self) -> Any:
            self.looks += 1
            return super().values()

        items = values

    made, _, _ = sent_request()
    made._streams = streams = Streams(made._streams)
    made.data_received(3_000 * said)
    assert streams.looks == 0
    made.connection_lost(None)


async def test_the_window_of_a_stream_is_adjusted_by_the_last_settings() -> None:
    made, _, _ = sent_request()
    heard = RecordingSink()
    made.data_received(SettingsFrame(0, {4: 5}).serialize())
    made.send(fields(method="POST"), bytes(10), heard)
    assert made.unsent(heard) == 5
    made.data_received(SettingsFrame(0, {4: 2}).serialize())
    made.data_received(WindowUpdateFrame(3, window_increment=4).serialize())
    assert made.unsent(heard) == 4
    made.data_received(SettingsFrame(0, {4: 6}).serialize())
    assert made.unsent(heard) == 0
    made.connection_lost(None)
