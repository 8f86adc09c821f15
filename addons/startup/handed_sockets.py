"""Listens on sockets that are open before the hub can answer: a client that connects waits in the kernel's queue.

The service manager opens them and hands them over (LISTEN_FDS, sd_listen_fds(3)), and keeps them open while the hub is
replaced. The program opens the others itself before it imports its server. A client whose connection is refused backs
off, for longer than a start takes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, MutableMapping

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

    def adopt_sockets(self, environment: MutableMapping[str, str] = os.environ) -> None:
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
                logger.warning("ignoring a handed socket that is not TCP: %s", sock)
                sock.close()
                continue
            self._sockets[_address(sock)] = sock

    def open(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Listen on those of these addresses that were not handed over.

        One that cannot be opened is left out: the hub retries, and logs the reason, once it can serve.
        """
        for host, port in addresses:
            if (host, port) not in self._sockets:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                with contextlib.suppress(OSError):
                    sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
                    self._sockets[host, port] = sock

    def at(self, host: str, port: int) -> socket.socket | None:
        """A descriptor of its own of the socket that listens there, if there is one."""
        sock = self._sockets.get((host, port))
        return sock.dup() if sock is not None else None

    def close(self) -> None:
        """Close the sockets; those that were handed over stay open in the service manager."""
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
