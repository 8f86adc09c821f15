"""What a connection of HTTP/2 tells and takes of its client, and what a layer's state keeps alive.

A frame that is too large is noticed when it begins, and a head before it ends.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, StreamEnded, StreamReset
from h2.exceptions import DenialOfServiceError, FrameTooLargeError
from hyperframe.frame import ContinuationFrame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame

from addons.proxy.http.http_connections import OF_A_STREAM, STREAMS_PER_CLIENT, HubH2Connection, OwnMethod
from addons.requests.exchange.http2_buffers import MAX_FRAME, MAX_HEAD
from tests.support.cpu_time import own_seconds


def test_an_http2_client_is_told_that_it_may_have_as_many_streams() -> None:
    made = server()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(made.data_to_send())
    assert client.remote_settings.max_concurrent_streams == STREAMS_PER_CLIENT


class Machine:
    """A state of its own, as mitmproxy's layers have one."""

    state: Any = OwnMethod()

    def __init__(self) -> None:
        self.state = self.begun

    def begun(self) -> str:
        self.state = self.done
        return "begun"

    def done(self) -> str:
        return "done"


def test_a_method_as_an_attribute_is_no_cycle() -> None:
    machine = Machine()
    assert (machine.state(), machine.state()) == ("begun", "done")
    assert machine.state == machine.done
    seen = weakref.ref(machine)
    del machine
    assert seen() is None


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""With empty settings."""


def server() -> HubH2Connection:
    made = HubH2Connection(H2Configuration(client_side=False))
    made.initiate_connection()  # type: ignore[no-untyped-call]  # as mitmproxy has it
    return made


def head(length: int) -> bytes:
    return length.to_bytes(3) + bytes((0, 0, 0, 0, 0, 1))


@pytest.mark.parametrize(
    ("sent", "fits"),
    [
        (b"", True),
        (b"\xff", True),
        (b"\xff\xff", True),
        (head(MAX_FRAME), True),
        (head(MAX_FRAME)[:3], True),
        (PingFrame(0, b"x" * 8).serialize() + head(MAX_FRAME) + b"x" * (MAX_FRAME - 1), True),
        (head(MAX_FRAME + 1)[:3], False),
        (head(2**24 - 1), False),
        (PingFrame(0, b"x" * 8).serialize() + head(MAX_FRAME + 1) + b"x", False),
    ],
)
def test_what_is_refused(sent: bytes, fits: bool) -> None:
    connection = server()
    with nullcontext() if fits else pytest.raises(FrameTooLargeError):
        connection.receive_data(PREFACE + sent)


@pytest.mark.parametrize(("more", "fits"), [(0, True), (2, True), (3, False), (60, False)])
def test_a_head_is_refused_before_its_last_frame(more: int, fits: bool) -> None:
    connection = server()
    part = b"x" * (MAX_HEAD // 3)
    frames = [HeadersFrame(1, part[:-100]), *(ContinuationFrame(1, part) for _ in range(more))]
    with nullcontext() if fits else pytest.raises(DenialOfServiceError):
        connection.receive_data(PREFACE + b"".join(each.serialize() for each in frames))


def test_a_preface_that_is_not_whole_is_no_frame() -> None:
    connection = server()
    assert connection.receive_data(PREFACE[:10]) == []


def test_what_is_told_of_windows_costs_one_look_at_the_streams() -> None:
    """1,000 frames of 13 bytes cost 0.9 s of the loop where 900 answers waited for a window."""
    connection, client = server(), H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.update_settings({SettingsFrame.INITIAL_WINDOW_SIZE: 0})
    request = [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "hub")]
    streams = range(1, 2 * 900, 2)
    for number in streams:
        client.send_headers(number, request, end_stream=True)
    connection.receive_data(client.data_to_send())
    for number in streams:
        connection.send_headers(number, [(":status", "200")])
        connection.send_data(number, b"x" * 100, end_stream=True)
    client.receive_data(connection.data_to_send())
    wider = WindowUpdateFrame(0, window_increment=1).serialize() * 500
    narrow = SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize() * 500
    assert own_seconds(lambda: connection.receive_data(wider + narrow)) < 0.2
    of_streams = len(streams) * OF_A_STREAM
    assert connection.unread == len(streams) * 100 + of_streams, "no more than so many wait for a window"
    wide = SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 100}).serialize()
    connection.receive_data(wide + WindowUpdateFrame(0, window_increment=10_000).serialize())
    assert connection._backlogs.size == len(streams) * 100 - 65_535 - 10_000 - 500


def test_settings_that_nobody_knows_are_not_kept() -> None:
    """A client without a token sent 400 KB of them, of which h2 made 56 MB for as long as the connection lasted."""
    connection = server()
    known = {SettingsFrame.INITIAL_WINDOW_SIZE: 7, SettingsFrame.MAX_CONCURRENT_STREAMS: 8}
    unknown = dict.fromkeys(range(100, 256), 1)
    connection.receive_data(PREFACE + SettingsFrame(0, known | unknown).serialize())
    assert (connection.remote_settings.initial_window_size, len(connection.remote_settings)) == (7, 6)


@pytest.mark.parametrize("waits", [False, True])
def test_a_stream_ends_with_its_answer_though_its_request_has_no_end(waits: bool) -> None:
    """27,000 requests without a token, whose bodies did not end, left the hub 36 MB after their answers."""
    connection, client = server(), H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.update_settings({SettingsFrame.INITIAL_WINDOW_SIZE: 0 if waits else 200})
    request = [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "hub")]
    client.send_headers(1, request)
    connection.receive_data(client.data_to_send())
    connection.send_headers(1, [(":status", "401")])
    connection.send_data(1, b"x" * 100)
    connection.end_stream(1)
    said = client.receive_data(connection.data_to_send())
    if waits:
        assert not [each for each in said if isinstance(each, StreamEnded)]
        client.increment_flow_control_window(200, 1)
        connection.receive_data(client.data_to_send())
        said = client.receive_data(connection.data_to_send())
    ends = [type(each) for each in said if isinstance(each, StreamEnded | StreamReset)]
    assert ends == [StreamEnded, StreamReset]
    assert connection.open_inbound_streams == 0


def test_an_answer_on_a_connection_that_ends_meanwhile_is_no_error() -> None:
    connection, client = server(), H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "hub")])
    connection.receive_data(client.data_to_send())
    connection.send_headers(1, [(":status", "401")], end_stream=True)
    connection.close_connection()
    said = client.receive_data(connection.data_to_send())
    assert isinstance(said[-1], ConnectionTerminated)
