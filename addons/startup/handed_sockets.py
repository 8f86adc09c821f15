"""Listens on sockets that the service manager has opened and hands over (LISTEN_FDS, sd_listen_fds(3)).

They stay open while the hub is replaced: a client that connects meanwhile waits in the kernel's queue for the next hub.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

FIRST = 3
"""The number of the first descriptor that is handed over."""
BACKLOG = 1024
"""Connections that wait in the kernel's queue, and as many as the unit asks for."""
ACCEPTED_AT_ONCE = 25
"""Connections that the event loop accepts before it does anything else. Each costs it half a millisecond."""

logger = logging.getLogger(__name__)


class HandedSockets:
    """The sockets handed to this process, by the address at which each listens."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[str, int], socket.socket] = {}

    def take(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Take the descriptors that were meant for this process; children are not to take them again."""
        meant_for = environment.pop("LISTEN_PID", "")
        count = environment.pop("LISTEN_FDS", "")
        environment.pop("LISTEN_FDNAMES", None)
        if meant_for != str(os.getpid()) or not count.isdecimal():
            return
        for descriptor in range(FIRST, FIRST + int(count)):
            os.set_inheritable(descriptor, False)
            sock = socket.socket(fileno=descriptor)
            if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
                logger.warning("a socket was handed over that is not of TCP: %s", sock)
                sock.close()
                continue
            self._sockets[_address(sock)] = sock

    def at(self, host: str, port: int) -> socket.socket | None:
        """A descriptor of its own of the socket that listens there, if one was handed over."""
        sock = self._sockets.get((host, port))
        return sock.dup() if sock is not None else None

    def close(self) -> None:
        """Let go of the sockets, which stay open in the service manager."""
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self._sockets]


handed = HandedSockets()


def _address(sock: socket.socket) -> tuple[str, int]:
    host, port, *_ = sock.getsockname()
    return host, port
