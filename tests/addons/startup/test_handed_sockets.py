"""Sockets of a service manager: only the process that they are for takes them, once, and listens on them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.proxy import listener_mode
from addons.proxy.listener_mode import HubInstance
from addons.proxy.listeners import closed, open_listeners, stop_accepting
from addons.startup import handed_sockets
from addons.startup.handed_sockets import HandedSockets


@pytest.fixture
def opened() -> Iterator[socket.socket]:
    """A socket of the service manager's."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


type Hand = Callable[..., HandedSockets]
"""What a process takes that was started with a copy of a socket as its first descriptor."""


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    made: list[HandedSockets] = []

    def take(given: socket.socket, **environment: str) -> HandedSockets:
        monkeypatch.setattr(handed_sockets, "FIRST", os.dup(given.fileno()))
        made.append(HandedSockets())
        told = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", **environment}
        made[-1].take(told)
        assert not told, "no child may take it again"
        return made[-1]

    yield take
    for each in made:
        each.close()


def spec_of(made: socket.socket) -> str:
    return f"hub:plain@127.0.0.1:{made.getsockname()[1]}"


async def test_a_socket_that_was_handed_over_is_listened_on_and_stays_open(
    monkeypatch: pytest.MonkeyPatch, hand: Hand, opened: socket.socket
) -> None:
    monkeypatch.setattr(listener_mode, "handed", hand(opened))
    spec = spec_of(opened)
    with taddons.context(server := Proxyserver(), NextLayer()):
        await open_listeners([spec])
        assert closed([spec]) == []
        _, writer = await asyncio.open_connection(*opened.getsockname())
        writer.close()
        stop_accepting()
        # The connection is not refused: it waits for the next hub, which this is.
        _, late = await asyncio.open_connection(*opened.getsockname())
        await server.servers.update([])
        await open_listeners([spec])
        late.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await late.drain()
        late.close()
        other = spec.replace(spec.rpartition(":")[2], "0")
        await open_listeners([spec, other])
        assert closed([other]) == [], "an address without a socket is mitmproxy's to open"
        await server.servers.update([])


async def test_others_go_between_the_connections_of_a_burst(
    monkeypatch: pytest.MonkeyPatch, hand: Hand, opened: socket.socket
) -> None:
    monkeypatch.setattr(listener_mode, "handed", hand(opened))
    monkeypatch.setattr(listener_mode, "ACCEPTED_AT_ONCE", 5)
    host, port = opened.getsockname()
    opened.listen(handed_sockets.BACKLOG)

    def connect() -> list[socket.socket]:
        return [socket.create_connection((host, port)) for _ in range(30)]

    waiting = await asyncio.to_thread(connect)
    turns, came_in = 0, []

    async def handle_stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came_in.append(turns)
        writer.close()

    instance: Any = HubInstance.make(spec_of(opened), Proxyserver())
    instance.handle_stream = handle_stream
    (server,) = await instance.listen(host, port)
    async with asyncio.timeout(30):
        while len(came_in) < len(waiting):
            turns += 1
            await asyncio.sleep(0)
    assert max(Counter(came_in).values()) <= 5
    queue = int.from_bytes(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[28:], sys.byteorder)
    assert queue > 5, "the others wait in the kernel"
    server.close()
    for each in waiting:
        each.close()


async def test_mitmproxy_itself_opens_each_listener(
    monkeypatch: pytest.MonkeyPatch, hand: Hand, opened: socket.socket
) -> None:
    monkeypatch.setattr(listener_mode, "handed", hand(opened))
    monkeypatch.delattr(HubInstance, "listen")
    with taddons.context(server := Proxyserver(), NextLayer()):
        with pytest.raises(OSError, match="Address already in use"):
            await open_listeners([spec_of(opened)])
        await server.servers.update([])


@pytest.mark.parametrize("environment", [{"LISTEN_PID": "1"}, {"LISTEN_FDS": "many"}, {"LISTEN_FDS": "0"}])
def test_what_is_not_for_this_process_is_left_alone(
    hand: Hand, opened: socket.socket, environment: dict[str, str]
) -> None:
    found = hand(opened, **environment)
    assert found.addresses == []
    os.close(handed_sockets.FIRST)


def test_a_socket_of_another_kind_is_told(hand: Hand, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        assert hand(other).addresses == []
    assert "is not of TCP" in caplog.text


def test_without_a_service_manager_there_is_nothing() -> None:
    found = HandedSockets()
    found.take({})
    assert found.addresses == []
    assert found.at("127.0.0.1", 1) is None
