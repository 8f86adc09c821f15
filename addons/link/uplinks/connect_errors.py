"""Whose fault it is that a connection to a server could not be opened: the server's, or this node's. Pure."""

from __future__ import annotations

import errno
import re
from enum import StrEnum

SERVER_ERRNOS = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET),
    }
)
"""What the kernel says when the server, or the link to it, does not take a connection."""
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")


class Fault(StrEnum):
    """Why a connection could not be opened."""

    SERVER = "server"
    """The server or the link refused it."""
    RESOLVER = "resolver"
    """The server's name could not be resolved."""
    NODE = "node"
    """The node has no descriptor, port or memory for it."""
    NONE = "none"
    """Nothing failed: the client left before the connection was open, or the hub cut it."""


def fault_of(message: str) -> Fault:
    """The fault in mitmproxy's message about a connection, which holds what asyncio raised.

    asyncio tries each address of a name and joins their errors; one that the server caused decides. The errors of the
    resolver are negative numbers.
    """
    numbers = [int(number) for number in _ERRNO.findall(message)]
    if not numbers:
        return Fault.NONE
    if SERVER_ERRNOS.intersection(numbers):
        return Fault.SERVER
    return Fault.RESOLVER if min(numbers) < 0 else Fault.NODE
