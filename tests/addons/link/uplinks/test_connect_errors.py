"""Whether a failed connection is the server's fault or the node's own, by the words of asyncio and mitmproxy."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

import pytest

from addons.link.uplinks.connect_errors import Fault, fault_of


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
def test_whose_fault_it_is(message: str, fault: Fault) -> None:
    assert fault_of(message) is fault


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (lambda: OSError(errno.EMFILE, os.strerror(errno.EMFILE)), Fault.NODE),
        (lambda: OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)), Fault.NODE),
        (lambda: ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), Fault.SERVER),
        (lambda: socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), Fault.RESOLVER),
    ],
)
def test_the_words_are_those_of_python(error: Callable[[], OSError], fault: Fault) -> None:
    assert fault_of(str(error())) is fault


async def test_a_refused_connection_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(OSError, match="Errno") as refused:
        await asyncio.open_connection("127.0.0.1", port)
    assert fault_of(str(refused.value)) is Fault.SERVER
