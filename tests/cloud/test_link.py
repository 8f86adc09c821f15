"""Each mode of the link, seen from both ends of a connection."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.cloud.fixtures import OpenLink
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK

TIMEOUT = 10.0
"""Seconds to wait for steps that take milliseconds."""
QUIET = 0.15
"""Seconds in which no byte may arrive: many times the delay of an open link."""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Return a listening socket; tests accept and respond themselves."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(TIMEOUT)
        yield listener


@pytest.fixture
def wire(server: socket.socket, link: OpenLink) -> Link:
    """A link to the server."""
    return link(*server.getsockname())


@contextlib.contextmanager
def connected(wire: Link, server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection through the link: the client's, the server's."""
    with socket.create_connection((wire.host, wire.port), TIMEOUT) as client:
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(TIMEOUT)
            yield client, accepted


def receive(end: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes, or fewer if the other end has sent FIN."""
    data = b""
    while len(data) < size and (chunk := end.recv(size - len(data))):
        data += chunk
    return data


def is_quiet(end: socket.socket, seconds: float = QUIET) -> bool:
    """Return True if nothing arrives, no byte, FIN or RST, for some time."""
    end.settimeout(seconds)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    else:
        return False
    finally:
        end.settimeout(TIMEOUT)


def test_a_black_hole_leaves_connections_open_and_forwards_nothing(wire: Link, server: socket.socket) -> None:
    with connected(wire, server) as (client, served):
        wire.black_hole()
        client.sendall(b"up")
        served.sendall(b"down")
        assert is_quiet(client)
        assert is_quiet(served)
        assert wire.traffic.open == 1
        wire.carry()
        assert receive(served, 2) == b"up"
        assert receive(client, 4) == b"down"


def test_a_black_hole_accepts_connections_and_forwards_nothing(wire: Link, server: socket.socket) -> None:
    wire.black_hole()
    with socket.create_connection((wire.host, wire.port), TIMEOUT) as client:
        client.sendall(b"hello")
        assert wire.wait(lambda traffic: traffic.open == 1, TIMEOUT).up == 0
        assert is_quiet(client)
        server.settimeout(QUIET)
        with pytest.raises(TimeoutError):
            server.accept()
        wire.carry()
        server.settimeout(TIMEOUT)
        served, _ = server.accept()
        with served:
            assert receive(served, 5) == b"hello"


@pytest.mark.parametrize("linger", [b"\0\0\0\0\0\0\0\0", b"\1\0\0\0\0\0\0\0"], ids=["FIN", "RST"])
def test_a_black_hole_hides_the_end_of_a_connection(wire: Link, server: socket.socket, linger: bytes) -> None:
    with connected(wire, server) as (client, served):
        wire.black_hole()
        served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        served.close()
        assert is_quiet(client)
        wire.carry()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_delay_applies_to_each_direction_and_does_not_add_up(wire: Link, server: socket.socket) -> None:
    delay = 0.1
    wire.carry(delay=delay)
    # Bytes sent one after the other: separate delays would add up far beyond what a busy machine explains.
    sent = 50
    with connected(wire, server) as (client, served):
        start = time.monotonic()
        for number in range(sent):  # sent one after the other, all in flight together
            client.sendall(bytes([number]))
        assert receive(served, sent) == bytes(range(sent))
        there = time.monotonic() - start
        served.sendall(b"x")
        assert receive(client, 1) == b"x"
        both = time.monotonic() - start
    assert delay <= there < sent * delay / 2
    assert both >= 2 * delay


def test_bandwidth_is_shared_by_all_connections_of_a_direction(wire: Link, server: socket.socket) -> None:
    wire.carry(bandwidth=100_000)
    with connected(wire, server) as (one, served_one), connected(wire, server) as (two, served_two):
        start = time.monotonic()
        one.sendall(bytes(10_000))
        two.sendall(bytes(10_000))
        served_one.sendall(bytes(10_000))
        assert len(receive(one, 10_000)) == 10_000
        down = time.monotonic() - start
        assert len(receive(served_one, 10_000)) == 10_000
        assert len(receive(served_two, 10_000)) == 10_000
        up = time.monotonic() - start
    assert down >= 0.09
    assert 0.19 <= up < TIMEOUT
