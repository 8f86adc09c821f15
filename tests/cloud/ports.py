"""Loopback ports for servers of tests: free ones, and reserved ones that survive a server's restart."""

from __future__ import annotations

import socket
from collections import deque

LOOPBACK = "127.0.0.1"


_given: deque[int] = deque(maxlen=1000)
"""The ports that `free_port` gave last."""


def free_port() -> int:
    """A port without a listener now, another one at each call. Other programs may take it: prefer ReservedPort.

    The kernel itself gives the same port twice now and then, and a hub whose listeners share one does not start.
    """
    while True:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.append(port)
            return port


class ReservedPort:
    """A loopback port that stays ours between the stop and the next start of a server.

    The port is held by a socket that is bound and never listens. A server shares it by SO_REUSEPORT
    (kube-apiserver's `--permit-port-sharing`, etcd's `--socket-reuse-port`, `listener()` for our own); the
    kernel gives connections to listening sockets only, so that a client is refused while no server runs.
    """

    def __init__(self, host: str = LOOPBACK, port: int = 0) -> None:
        """A port of a loopback address: this one, or any that is free."""
        self.host = host
        self._holder = _bound(host, port)
        self.number = int(self._holder.getsockname()[1])

    def listener(self) -> socket.socket:
        """A new bound socket on this port, ready to listen."""
        return _bound(self.host, self.number)

    def release(self) -> None:
        """Gives the port back; safe to call twice."""
        self._holder.close()


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
