"""The relay between two sockets, by which the bench reads what goes between a hub and its cloud, too."""

from __future__ import annotations

import socket

from tests.support.relay import copy


def test_a_connection_that_ends_keeps_its_number_while_the_other_direction_reads() -> None:
    """The next connection had the number: the former one's thread read its bytes, and the hub opened a second one."""
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
