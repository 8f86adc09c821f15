"""Listening sockets that are open before the hub can answer, so that connections wait in the kernel's queue.

The service manager opens sockets, passes them to the hub (LISTEN_FDS, sd_listen_fds(3)), and holds them open while the
hub is replaced. The program opens the other sockets itself before it imports its server. Clients whose connection is
refused back off for longer than a start takes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, MutableMapping

FIRST_DESCRIPTOR = 3
"""Number of the first descriptor that is passed."""
BACKLOG = 1024
"""Maximum connections in the kernel's queue; the systemd unit sets the same."""
ACCEPT_BATCH = 25
"""Connections that the event loop accepts before other work. Each takes half a millisecond."""

logger = logging.getLogger(__name__)


class HandedSockets:
    """The listening sockets of this process, by address."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[str, int], socket.socket] = {}

    def adopt_sockets(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Adopt the descriptors passed to this process, and remove the variables, so that children do not adopt them
        again.
        """
        meant_for = environment.pop("LISTEN_PID", "")
        count = environment.pop("LISTEN_FDS", "")
        environment.pop("LISTEN_FDNAMES", None)
        if meant_for != str(os.getpid()) or not count.isdecimal():
            return
        for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
            os.set_inheritable(descriptor, False)
            sock = socket.socket(fileno=descriptor)
            if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
                logger.warning("ignoring a handed socket that is not TCP: %s", sock)
                sock.close()
                continue
            self._sockets[_address(sock)] = sock

    def open(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Listen at each of these addresses for which no socket was passed.

        An address that fails is skipped: once the hub can serve, it retries and logs the reason.
        """
        for host, port in addresses:
            if (host, port) not in self._sockets:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                with contextlib.suppress(OSError):
                    sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
                    self._sockets[host, port] = sock

    def at(self, host: str, port: int) -> socket.socket | None:
        """Return a duplicate of the socket that listens at this address; None if there is none."""
        sock = self._sockets.get((host, port))
        return sock.dup() if sock is not None else None

    def close(self) -> None:
        """Close the sockets. Those from the service manager stay open there."""
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self._sockets]


handed = HandedSockets()
"""The sockets of this process, made at import because neither user can be passed an object: an interface loads the hub
as a script, and mitmproxy makes a listener from its mode alone."""


def _address(sock: socket.socket) -> tuple[str, int]:
    host, port, *_ = sock.getsockname()
    return host, port
