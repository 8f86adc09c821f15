"""An uplink of this node: parsing, opening connections through it, and the causes of failures."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

_DEVICE = re.compile(r"[^\s/:\[\]]{1,15}")
"""Pattern of a Linux network device's name: at most IFNAMSIZ minus its final NUL."""
_FORM = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<cost>[0-9]+))?")
UPLINK_ERRNOS = frozenset({errno.ENODEV, errno.ENXIO, errno.EADDRNOTAVAIL, errno.EPERM})
"""The kernel's errors if the uplink is missing, has no address, or may not be used."""
SERVER_ERRNOS = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET),
    }
)
"""The kernel's errors if the server, or the link to it, refuses a connection."""
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")
_NO_CONNECTION = re.compile(r"\[Errno (\d+)\] Connect call failed(?: \([^)]*\))?")
"""asyncio's message for a connection that cannot be opened, with only the number of the system's error."""


class Uplink(NamedTuple):
    """A network device, or an address of one, through which connections leave the node."""

    name: str
    is_address: bool = False

    def __str__(self) -> str:
        return self.name

    def bind(self, unbound: socket.socket) -> None:
        """Bind a socket to this uplink. OSError if that fails.

        A device is bound whatever its current address is: Linux permits that to all processes since 5.7, before that
        with CAP_NET_RAW. An address works only if the routes lead over its device, which the kernel does not ensure.
        """
        if self.is_address:
            unbound.bind((self.name, 0))
        else:
            unbound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.name.encode())

    async def open(self, host: str, port: int) -> socket.socket:
        """Open a connection to a host through this uplink. The system's resolver looks up the name. OSError, with an
        entry for each of the host's addresses, if none is reachable."""
        loop, errors = asyncio.get_running_loop(), list[str]()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            opened = socket.socket(family, kind, protocol)
            opened.setblocking(False)
            try:
                self.bind(opened)
                await loop.sock_connect(opened, address)
            except OSError as error:
                opened.close()
                errors.append(str(self._translated(error)))
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise OSError("; ".join(errors))

    def _translated(self, error: OSError) -> OSError:
        """Return ENETUNREACH if the uplink is missing: unlike a shortage of ports it is no fault of the node, and
        another uplink may work.
        """
        if error.errno in UPLINK_ERRNOS or isinstance(error, socket.gaierror):
            return OSError(errno.ENETUNREACH, f"uplink {self.name}: {error.strerror}")
        return error


async def connect[P: asyncio.BaseProtocol](
    make: Callable[[], P], host: str, port: int, uplink: Uplink | None
) -> tuple[asyncio.Transport, P]:
    """Open a connection like the loop's `create_connection`, through an uplink. All connections to servers are opened
    here.
    """
    loop = asyncio.get_running_loop()
    if uplink is None:
        return await loop.create_connection(make, host, port)
    return await loop.create_connection(make, sock=await uplink.open(host, port))


class Fault(StrEnum):
    """Causes of a failure to open a connection."""

    SERVER = "server"
    """The server, or the link to it, refused the connection."""
    RESOLVER = "resolver"
    """The server's name could not be resolved."""
    NODE = "node"
    """The node has no descriptor, port or memory for it."""
    NONE = "none"
    """No system error: a timeout, or the hub closed the connection."""


def fault_of(message: str) -> Fault:
    """Return the cause in asyncio's error message for a connection that could not be opened.

    asyncio tries each address of a name and joins the errors; a single error of the server decides. Resolver errors
    have negative numbers.
    """
    numbers = [int(number) for number in _ERRNO.findall(message)]
    if not numbers:
        return Fault.NONE
    if SERVER_ERRNOS.intersection(numbers):
        return Fault.SERVER
    return Fault.RESOLVER if min(numbers) < 0 else Fault.NODE


def readable_error(message: str) -> str:
    """Replace errno numbers in asyncio's message about a failed connection by the system's texts."""
    readable = _NO_CONNECTION.sub(lambda match: os.strerror(int(match[1])), message)
    return _ERRNO.sub("", readable).replace("  ", " ").strip()


def parse_uplinks(name: str, text: str) -> tuple[Uplink, ...]:
    """Parse `DEVICE|ADDRESS[:COST],…`. Return the uplinks by cost, those of equal cost in the order of the list.
    ValueError for anything else."""
    uplinks: list[tuple[int, Uplink]] = []
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        if is_address(entry):
            uplinks.append((0, Uplink(entry, is_address=True)))
            continue
        parts = _FORM.fullmatch(entry)
        bare = (parts["address"] or parts["name"]) if parts is not None else ""
        if parts is None or not (is_address(bare) or _DEVICE.fullmatch(bare)):
            raise ValueError(f"{name}: {entry!r} is not of the form DEVICE[:COST] or ADDRESS[:COST]")
        uplinks.append((int(parts["cost"] or 0), Uplink(bare, is_address(bare))))
    made = tuple(uplink for _, uplink in sorted(uplinks, key=lambda entry: entry[0]))
    if len(set(made)) != len(made):
        raise ValueError(f"{name} names an uplink twice")
    return made


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
