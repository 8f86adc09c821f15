"""Upstream connections through a real mitmproxy: reused where HTTP/1.1 allows it, and open streams outlast a GOAWAY."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from mitmproxy.proxy.layers.http import HttpLayer

from addons.proxy.http import http_connections
from addons.proxy.http.http_connections import (
    STREAMS_PER_CLIENT,
    HubH2Connection,
    HubHttp2Client,
    OwnMethod,
)
from tests.addons.support.lasting_parts import ask, connected, known, watch
from tests.addons.support.proxied import ANSWER, Http2Server, Raw

ALL = 2**31 - 1
"""As the last stream of a farewell: whatever was sent so far is answered."""


async def test_a_server_of_http1_keeps_its_connections() -> None:
    server = Raw(ANSWER, kept=True)
    async with connected(server) as (_, streams):
        for _ in range(5):
            assert await ask(streams) == 200
        assert server.accepted == 1
        at_once = [streams.get("/", {}) for _ in range(3)]
        await streams.until(lambda: streams.ended.issuperset(at_once))
        assert {streams.status[each] for each in at_once} == {200}
        assert (server.accepted, len(server.got)) == (3, 8), "one answers one at a time"


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    server = Raw(ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), kept=True)
    async with connected(server) as (_, streams):
        assert [await ask(streams) for _ in range(3)] == [200] * 3
        assert server.accepted == 3


async def test_after_a_farewell_streams_go_on_and_new_ones_go_elsewhere() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (_, streams):
        (watched,) = await watch(streams, 1)
        server.say_farewell(0, ALL)
        server.tell(0, 1, b" again")
        await streams.until(lambda: streams.received[watched] == len(b"server again"))
        assert await ask(streams) == 200
        assert server.streams == [1, 1]
        server.tell(0, 1, b" and again")
        await streams.until(lambda: streams.received[watched] == len(b"server again and again"))
        assert watched not in streams.ended


async def test_what_the_server_has_not_seen_before_its_farewell_breaks_off() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (_, streams):
        first, second = await watch(streams, 2)
        server.say_farewell(0, 1)
        await streams.until(lambda: second in streams.ended)
        assert first not in streams.ended


async def test_after_an_error_of_the_connection_nothing_goes_on() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (_, streams):
        watches = await watch(streams, 2)
        server.say_farewell(0, ALL, ErrorCodes.ENHANCE_YOUR_CALM)
        await streams.until(lambda: streams.ended.issuperset(watches))
        assert await ask(streams) == 200
        assert server.streams == [2, 1]


async def test_numbers_of_ended_streams_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "MAX_REMEMBERED", 5)
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        (watched,) = await watch(streams, 1)
        for _ in range(50):
            assert await ask(streams) == 200
        (conn,) = known(proxy)
        layer = proxy.handlers[0].layer
        assert isinstance(layer, HttpLayer)
        client = layer.connections[conn].context.layers[-1]
        assert isinstance(client, HubHttp2Client)
        assert len(client.our_stream_id) == len(client.their_stream_id) <= 11
        assert watched in client.our_stream_id, "it is still open"


def test_an_http2_client_is_told_that_it_may_have_as_many_streams() -> None:
    made = HubH2Connection(H2Configuration(client_side=False))
    made.initiate_connection()  # type: ignore[no-untyped-call]  # as mitmproxy has it
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(made.data_to_send())
    assert client.remote_settings.max_concurrent_streams == STREAMS_PER_CLIENT


async def test_mitmproxys_own_connection_ends_all_streams_at_a_goaway() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server, HttpLayer) as (_, streams):
        (watched,) = await watch(streams, 1)
        server.say_farewell(0, ALL)
        await streams.until(lambda: watched in streams.ended)


async def test_mitmproxys_own_connection_of_http1_is_for_one_request() -> None:
    server = Raw(ANSWER, kept=True)
    async with connected(server, HttpLayer) as (_, streams):
        assert [await ask(streams) for _ in range(2)] == [200] * 2
        assert server.accepted == 2


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
