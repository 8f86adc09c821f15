"""Free and reserved loopback ports."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.cloud.ports import LOOPBACK, ReservedPort, free_port


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets with names that are no files")
def test_a_free_port_is_claimed_against_parallel_processes() -> None:
    claim = "import socket, sys; socket.socket(socket.AF_UNIX).bind(chr(0) + 'edgehub-port-' + sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", claim, str(free_port())], capture_output=True, text=True, check=False
    )
    assert "Address already in use" in done.stderr


def test_a_reserved_port_refuses_until_a_server_shares_it() -> None:
    def connect(port: int) -> None:
        socket.create_connection((LOOPBACK, port), timeout=5).close()

    port = ReservedPort()
    with pytest.raises(ConnectionRefusedError):
        connect(port.number)
    for _ in range(2):  # a server that starts, stops and starts again
        with port.listener() as server:
            server.listen()
            connect(port.number)
        with pytest.raises(ConnectionRefusedError):
            connect(port.number)
    port.release()
    port.release()


def test_a_reserved_port_is_in_use_until_its_release() -> None:
    port = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, port.number))
    port.release()
    with socket.socket() as other:
        other.bind((LOOPBACK, port.number))
