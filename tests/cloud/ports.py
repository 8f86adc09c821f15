"""Loopback ports for test servers: free ones, and reserved ones that survive a server's restart."""

from __future__ import annotations

import atexit
import functools
import secrets
import socket
import sys
from collections import deque
from pathlib import Path

LOOPBACK = "127.0.0.1"


FIRST = 12_000
"""The lowest port that `free_port` returns."""
KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The file with the range of ports that Linux assigns to outgoing connections."""


_claims: deque[socket.socket] = deque()
"""Sockets that reserve the last ports of `free_port` against other test processes."""
CLAIMS = 200
"""The number of ports that a process reserves at a time: a server listens soon after it got its port."""


@atexit.register
def _give_up_claims() -> None:
    """Close the reserved sockets before Python exits, which would warn about each."""
    for claim in _claims:
        claim.close()


def free_port() -> int:
    """Return a port without a listener, another one at each call and in each test process. The port is below the range
    that the kernel assigns: any program's next connection could take a port of that range before the server listens."""
    while True:
        port = FIRST + secrets.randbelow(_below() - FIRST)
        claim = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":  # Linux has an abstract namespace for socket names
                claim.bind(f"\0edgehub-port-{port}")
            with socket.socket() as probe:
                probe.bind((LOOPBACK, port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        if len(_claims) > CLAIMS:
            _claims.popleft().close()
        return port


@functools.cache
def _below() -> int:
    """Return the lowest port that the kernel assigns."""
    return max(int(KERNELS.read_text().split()[0]), 2 * FIRST) if KERNELS.exists() else 3 * FIRST


class ReservedPort:
    """A loopback port that stays reserved between the stop and the next start of a server. A socket that is bound and
    never listens holds the port. A server shares it by SO_REUSEPORT (kube-apiserver's `--permit-port-sharing`, etcd's
    `--socket-reuse-port`, `listener()` for test servers); the kernel passes connections only to listening sockets, so a
    client is refused while no server runs."""

    def __init__(self, host: str = LOOPBACK, port: int = 0) -> None:
        """Reserve a port of a loopback address: this one, or any free one."""
        self.host = host
        self._holder = _bound(host, port)
        self.number = int(self._holder.getsockname()[1])

    def listener(self) -> socket.socket:
        """Return a new socket bound to this port, ready to listen."""
        return _bound(self.host, self.number)

    def release(self) -> None:
        """Release the port; may be called twice."""
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
