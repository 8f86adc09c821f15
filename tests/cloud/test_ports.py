"""Loopback ports."""

from __future__ import annotations

import socket

import pytest

from tests.cloud.ports import LOOPBACK, ReservedPort, free_port


def connect(port: int) -> None:
    socket.create_connection((LOOPBACK, port), timeout=5).close()


def test_a_free_port_can_be_bound() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        assert server.getsockname() == (LOOPBACK, port)


def test_a_reserved_port_refuses_until_a_server_shares_it() -> None:
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


def test_nobody_else_gets_a_reserved_port() -> None:
    port = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, port.number))
    port.release()
    with socket.socket() as other:
        other.bind((LOOPBACK, port.number))
