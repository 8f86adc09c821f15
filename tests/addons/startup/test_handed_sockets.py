"""Socket activation, notifications to the service manager, and the limit of file descriptors."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.proxy import listener_mode
from addons.proxy.listener_mode import HubInstance
from addons.proxy.listeners import closed, open_listeners, stop_accepting
from addons.startup import descriptors, handed_sockets
from addons.startup.descriptors import limit_accept_logs, raise_descriptor_limit
from addons.startup.handed_sockets import HandedSockets
from addons.startup.service_manager import READY, STOPPING, WATCHDOG_MESSAGE, notify, send_watchdog_messages
from tests.cloud.ports import free_port


@pytest.fixture
def opened() -> Iterator[socket.socket]:
    """Open a socket as the service manager does."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


type Hand = Callable[..., HandedSockets]
"""Takes the sockets of a process that was started with a copy of a socket as its first descriptor."""


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    made: list[HandedSockets] = []

    def take(given: socket.socket, **environment: str) -> HandedSockets:
        monkeypatch.setattr(handed_sockets, "FIRST_DESCRIPTOR", os.dup(given.fileno()))
        made.append(HandedSockets())
        variables = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", **environment}
        made[-1].adopt_sockets(variables)
        assert not variables, "no child may take it again"
        return made[-1]

    yield take
    for each in made:
        each.close()


def spec_of(made: socket.socket) -> str:
    return f"hub:plain@127.0.0.1:{made.getsockname()[1]}"


async def test_an_inherited_socket_is_listened_on_and_stays_open(
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
        # The connection is not refused: it waits for the next hub, in this test the same one.
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


async def test_callbacks_run_between_the_connections_of_a_burst(
    monkeypatch: pytest.MonkeyPatch, hand: Hand, opened: socket.socket
) -> None:
    monkeypatch.setattr(listener_mode, "handed", hand(opened))
    monkeypatch.setattr(listener_mode, "ACCEPT_BATCH", 5)
    host, port = opened.getsockname()
    opened.listen(handed_sockets.BACKLOG)

    def connect() -> list[socket.socket]:
        return [socket.create_connection((host, port)) for _ in range(30)]

    waiting = await asyncio.to_thread(connect)
    iterations, came_in = 0, []

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            came_in.append(iterations)
            transport.close()

    monkeypatch.setattr(listener_mode, "Accepted", lambda *_: Accepting())
    instance: Any = HubInstance.make(spec_of(opened), Proxyserver())
    (server,) = await instance.listen(host, port)
    async with asyncio.timeout(30):
        while len(came_in) < len(waiting):
            iterations += 1
            await asyncio.sleep(0)
    assert max(Counter(came_in).values()) <= 5
    queue = int.from_bytes(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[28:], sys.byteorder)
    assert queue > 5, "the others wait in the kernel"
    server.close()
    for each in waiting:
        each.close()


async def test_mitmproxys_own_code_opens_each_listener(
    monkeypatch: pytest.MonkeyPatch, hand: Hand, opened: socket.socket
) -> None:
    monkeypatch.setattr(listener_mode, "handed", hand(opened))
    monkeypatch.delattr(HubInstance, "listen")
    with taddons.context(server := Proxyserver(), NextLayer()):
        with pytest.raises(OSError, match="Address already in use"):
            await open_listeners([spec_of(opened)])
        await server.servers.update([])


def test_addresses_without_an_inherited_socket_are_opened(hand: Hand, opened: socket.socket) -> None:
    taken = hand(opened)
    free = free_port()
    taken.open([opened.getsockname(), ("127.0.0.1", free), ("::1", free), ("192.0.2.1", free)])
    assert sorted(taken.addresses) == sorted(
        [f"127.0.0.1:{opened.getsockname()[1]}", f"127.0.0.1:{free}", f"::1:{free}"]
    )
    socket.create_connection(("127.0.0.1", free)).close()
    other = HandedSockets()
    other.open([("127.0.0.1", free)])
    assert other.addresses == [], "another program listens there"
    taken.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free))


@pytest.mark.parametrize("environment", [{"LISTEN_PID": "1"}, {"LISTEN_FDS": "many"}, {"LISTEN_FDS": "0"}])
def test_sockets_for_another_process_are_left_alone(
    hand: Hand, opened: socket.socket, environment: dict[str, str]
) -> None:
    found = hand(opened, **environment)
    assert found.addresses == []
    os.close(handed_sockets.FIRST_DESCRIPTOR)


def test_an_inherited_socket_that_is_not_tcp_is_reported(
    hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        assert hand(other).addresses == []
    assert "is not TCP" in caplog.text


def test_no_socket_is_inherited_without_a_service_manager() -> None:
    found = HandedSockets()
    found.adopt_sockets({})
    assert found.addresses == []
    assert found.at("127.0.0.1", 1) is None


def test_the_soft_limit_is_raised_as_far_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        descriptors,
        "resource",
        SimpleNamespace(
            getrlimit=lambda _: (1024, 4096),
            setrlimit=lambda _, limits: asked.append(limits),
            RLIMIT_NOFILE=resource.RLIMIT_NOFILE,
            RLIM_INFINITY=resource.RLIM_INFINITY,
        ),
    )
    assert raise_descriptor_limit() == 4096
    assert asked == [(4096, 4096)]


async def test_a_failing_accept_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop, others, now = asyncio.get_running_loop(), [], 0.0
    loop.set_exception_handler(lambda _, context: others.append(context["message"]))
    limit_accept_logs(loop, lambda: now)
    with caplog.at_level(logging.ERROR):
        for moment in (0.0, 1.0, 59.0, 61.0):
            now = moment
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": "x"}
            )
        loop.call_exception_handler({"message": "another"})
    assert len(caplog.records) == 2
    assert others == ["another"]


@pytest.mark.parametrize("abstract", [False, True])
def test_states_are_sent_to_the_notification_socket(tmp_path: Path, abstract: bool) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if abstract else path)
        manager.settimeout(10)
        for state in (READY, STOPPING):
            notify(state, {"NOTIFY_SOCKET": f"@{path}" if abstract else path})
            assert manager.recv(100).decode() == state


@pytest.mark.looptime
async def test_the_watchdog_is_notified_twice_in_its_period(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "120000000"}
        for environment in ({}, given | {"WATCHDOG_PID": "1"}):
            await send_watchdog_messages(environment)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_watchdog_messages(given | {"WATCHDOG_PID": str(os.getpid())}), 179)
        assert [manager.recv(100).decode() for _ in range(3)] == [WATCHDOG_MESSAGE] * 3
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def test_no_state_is_sent_without_a_service_manager(caplog: pytest.LogCaptureFixture) -> None:
    notify(READY, {})
    assert not caplog.records


def test_a_missing_notification_socket_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notify(READY, {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "cannot notify the service manager of READY=1" in caplog.text
