"""The relay between two sockets, which the bench also uses to read the traffic between a hub and its cloud."""

from __future__ import annotations

import socket

from tests.support.relay import copy


def test_a_closed_connections_number_is_not_reused_while_it_is_read() -> None:
    """The next connection once got the number, so the former one's thread read its bytes, and the hub opened a second
    one."""
    client, near = socket.socketpair()
    far, server = socket.socketpair()
    read: list[bytes] = []
    with client, near, far, server:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        copy(near, far, read.append)
        assert (read, server.recv(65536), server.recv(1)) == ([b"last"], b"last", b"")
        assert far.recv(1) == b"", "the other direction learns of the end"
        assert -1 not in (near.fileno(), far.fileno())
