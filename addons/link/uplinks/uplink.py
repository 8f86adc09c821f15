"""An uplink of this node: parsed from the operator's text, how a connection is opened by it, and why one could not."""

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
"""The name of a Linux device: IFNAMSIZ with its final zero."""
_FORM = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<cost>[0-9]+))?")
NOT_THERE = frozenset({errno.ENODEV, errno.ENXIO, errno.EADDRNOTAVAIL, errno.EPERM})
"""The kernel's errors where the uplink is missing, has no address, or may not be used."""
SERVER_ERRNOS = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET),
    }
)
"""The kernel's errors where the server, or the link to it, does not take a connection."""
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")
_NO_CONNECTION = re.compile(r"\[Errno (\d+)\] Connect call failed(?: \([^)]*\))?")
"""asyncio's messages for a connection that cannot be opened, without the system's error."""


class Uplink(NamedTuple):
    """A device, or an address of one, by which connections leave the node."""

    name: str
    is_address: bool = False

    def __str__(self) -> str:
        return self.name

    def bind(self, unbound: socket.socket) -> None:
        """Bind a socket to this uplink; OSError where it cannot be bound.

        A device counts whatever its current address is. Linux allows this to every process since 5.7, before that with
        CAP_NET_RAW. For an address, routes must lead over its device, which the kernel does not ensure.
        """
        if self.is_address:
            unbound.bind((self.name, 0))
        else:
            unbound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.name.encode())

    async def open(self, host: str, port: int) -> socket.socket:
        """A connection to a host by this uplink. OSError, with a line for each of the host's addresses, where none
        leads there; the system's resolver knows its name."""
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
        """An uplink that is not there is no fault of the node, as a want of ports is: another one may lead there."""
        if error.errno in NOT_THERE or isinstance(error, socket.gaierror):
            return OSError(errno.ENETUNREACH, f"uplink {self.name}: {error.strerror}")
        return error


async def connect[P: asyncio.BaseProtocol](
    make: Callable[[], P], host: str, port: int, uplink: Uplink | None
) -> tuple[asyncio.Transport, P]:
    """Like the loop's `create_connection`, by an uplink. The one place where a connection to a server is opened."""
    loop = asyncio.get_running_loop()
    if uplink is None:
        return await loop.create_connection(make, host, port)
    return await loop.create_connection(make, sock=await uplink.open(host, port))


class Fault(StrEnum):
    """Why a connection could not be opened."""

    SERVER = "server"
    """The server or the link refused it."""
    RESOLVER = "resolver"
    """The server's name could not be resolved."""
    NODE = "node"
    """The node has no descriptor, port or memory for it."""
    NONE = "none"
    """No error of the system: a time-out, or the hub cut the connection."""


def fault_of(message: str) -> Fault:
    """The fault in asyncio's error about a connection that it could not open.

    asyncio tries each address of a name and joins their errors; one that the server caused decides. The errors of the
    resolver are negative numbers.
    """
    numbers = [int(number) for number in _ERRNO.findall(message)]
    if not numbers:
        return Fault.NONE
    if SERVER_ERRNOS.intersection(numbers):
        return Fault.SERVER
    return Fault.RESOLVER if min(numbers) < 0 else Fault.NODE


def readable_error(message: str) -> str:
    """Shorten asyncio's message about a failed connection by the numbers of operating systems."""
    readable = _NO_CONNECTION.sub(lambda match: os.strerror(int(match[1])), message)
    return _ERRNO.sub("", readable).replace("  ", " ").strip()


def parse_uplinks(name: str, text: str) -> tuple[Uplink, ...]:
    """The uplinks of `DEVICE|ADDRESS[:COST],…`, the cheapest first, equals as they are listed; ValueError otherwise."""
    uplinks: list[tuple[int, Uplink]] = []
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        if is_address(entry):
            uplinks.append((0, Uplink(entry, is_address=True)))
            continue
        parts = _FORM.fullmatch(entry)
        bare = (parts["address"] or parts["name"]) if parts is not None else ""
        if parts is None or not (is_address(bare) or _DEVICE.fullmatch(bare)):
            raise ValueError(
                f"{name}: {entry!r} is not of the form DEVICE, ADDRESS, or one with :COST behind it"
            )
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
