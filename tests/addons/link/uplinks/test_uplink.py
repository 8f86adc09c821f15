"""Uplinks: valid names, the uplink that a connection uses, and the cause of a failed connection."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from addons.link.uplinks import uplink as uplinks
from addons.link.uplinks.uplink import Fault, Uplink, fault_of, parse_uplinks, readable_error

LOOPBACK = "127.0.0.1"
OTHER = "127.0.0.7"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("wwan0", ["wwan0"]),
        ("wwan0, eth0", ["wwan0", "eth0"]),
        ("wwan0:10,eth0", ["eth0", "wwan0"]),
        ("wwan0:10,eth0:3,10.0.0.5:3", ["eth0", "10.0.0.5", "wwan0"]),
        ("fd00::1:10,eth0", ["fd00::1:10", "eth0"]),
        ("[fd00::1]:10,eth0", ["eth0", "fd00::1"]),
        ("[fd00::1],eth0.100", ["fd00::1", "eth0.100"]),
    ],
)
def test_uplinks_are_in_the_order_of_their_costs_then_as_listed(text: str, names: list[str]) -> None:
    found = parse_uplinks("hub_uplink", text)
    assert [each.name for each in found] == names
    assert all(each.is_address == (":" in each.name or each.name[0].isdecimal()) for each in found)


@pytest.mark.parametrize(
    "text", ["a-name-that-is-too-long", "wwan0:x", "wwan0:", "wan 0", "a/b", "[wan0", "w,w:3"]
)
def test_a_malformed_uplink_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hub_uplink"):
        parse_uplinks("hub_uplink", text)


class CallerRecorder(asyncio.Protocol):
    """Record the addresses of callers."""

    callers: list[str]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.callers.append(transport.get_extra_info("peername")[0])
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    CallerRecorder.callers = []
    server = await asyncio.get_running_loop().create_server(CallerRecorder, LOOPBACK, 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


class ClosedProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.over = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.over.set()


async def test_a_connection_leaves_by_its_uplink(port: int) -> None:
    async def came_from(port: int, uplink: Uplink | None, host: str = LOOPBACK) -> str:
        _, ended = await uplinks.connect(ClosedProtocol, host, port, uplink)
        await ended.over.wait()
        return CallerRecorder.callers[-1]

    assert await came_from(port, None) == LOOPBACK
    assert await came_from(port, Uplink(OTHER, is_address=True)) == OTHER
    assert await came_from(port, Uplink("lo")) == LOOPBACK
    assert await came_from(port, Uplink("lo"), "localhost") == LOOPBACK
    with socket.socket() as bound:
        Uplink("lo").bind(bound)
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0") == b"lo"


@pytest.mark.parametrize(
    ("uplink", "host", "said"),
    [
        (Uplink("gone0"), LOOPBACK, "uplink gone0: No such device"),
        (
            Uplink("203.0.113.7", is_address=True),
            LOOPBACK,
            "uplink 203.0.113.7: Cannot assign requested address",
        ),
        (Uplink(OTHER, is_address=True), "::1", f"uplink {OTHER}: "),
        (Uplink("lo"), LOOPBACK, "Connection refused|Connect call failed"),
    ],
)
async def test_an_uplink_without_a_route_is_a_fault_of_the_server(
    uplink: Uplink, host: str, said: str
) -> None:
    """Another uplink may have a route, so the server counts as down through this one."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        with pytest.raises(OSError, match=said) as failed:
            await uplinks.connect(ClosedProtocol, host, taken.getsockname()[1], uplink)
    assert fault_of(str(failed.value)) is Fault.SERVER


async def test_a_cancelled_connect_leaves_no_open_socket() -> None:
    with socket.create_server((LOOPBACK, 0), backlog=0) as full:
        opening = [asyncio.create_task(Uplink("lo").open(*full.getsockname())) for _ in range(4)]
        await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
        left = [each for each in opening if each.cancel()]
        for each in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(each, socket.socket):
                each.close()
        assert left, "the queue of the server was full"


# -- the cause of a failed connection ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("[Errno 111] Connect call failed ('10.0.0.1', 6443)", Fault.SERVER),
        ("[Errno 113] No route to host", Fault.SERVER),
        ("Multiple exceptions: [Errno 111] Connect call failed, [Errno 99] Cannot assign", Fault.SERVER),
        ("Multiple exceptions: [Errno 24] Too many open files, [Errno 24] Too many", Fault.NODE),
        ("[Errno 99] Cannot assign requested address", Fault.NODE),
        ("[Errno -3] Temporary failure in name resolution", Fault.RESOLVER),
        ("[Errno -2] Name or service not known", Fault.RESOLVER),
        ("client disconnected", Fault.NONE),
        ("connection cancelled", Fault.NONE),
        ("cut by the hub", Fault.NONE),
        ("", Fault.NONE),
    ],
)
def test_a_connect_error_is_attributed_to_node_or_server(message: str, fault: Fault) -> None:
    assert fault_of(message) is fault


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[Errno 111] Connection refused", "Connection refused"),
        ("[Errno 111] Connect call failed ('127.0.0.1', 6443)", "Connection refused"),
        (
            "Multiple exceptions: [Errno 104] Connect call failed ('::1', 1, 0, 0), [Errno 99] Cannot assign",
            "Multiple exceptions: Connection reset by peer, Cannot assign",
        ),
        ("[Errno 2] tokenFile of the kubeconfig: No such file or directory: '/t'", None),
        ("no word for 6 s", "no word for 6 s"),
    ],
)
def test_a_reason_contains_no_errno(message: str, expected: str | None) -> None:
    assert readable_error(message) == (expected or message.partition("] ")[2])


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (lambda: OSError(errno.EMFILE, os.strerror(errno.EMFILE)), Fault.NODE),
        (lambda: OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)), Fault.NODE),
        (lambda: ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), Fault.SERVER),
        (lambda: socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), Fault.RESOLVER),
    ],
)
def test_the_faults_match_the_error_messages_of_python(error: Callable[[], OSError], fault: Fault) -> None:
    assert fault_of(str(error())) is fault


async def test_a_refused_connection_is_a_fault_of_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(OSError, match="Errno") as refused:
        await asyncio.open_connection("127.0.0.1", port)
    assert fault_of(str(refused.value)) is Fault.SERVER
