"""Which user of this node has the other end of a TCP connection, from the kernel's table of connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from threading import Lock

TABLES = {4: "/proc/net/tcp", 6: "/proc/net/tcp6"}
"""By the version of IP. Linux alone has them."""
ESTABLISHED = "01"
"""A socket that its program has closed stays in the table for a while as one of user 0."""

type Users = dict[tuple[str, str], int]
"""The user of each open connection, by both addresses as the table has them: the user's own end comes first."""


async def peer_user(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user id of the program at `peer` that is connected to `own`.

    None when the table has no such connection: the program is on another machine, in another network namespace, or has
    closed its socket. One read of the table serves all callers that asked before it began: the table is long where
    connections come and go fast, and a read for each caller would come ever later.
    """
    users = await asyncio.shield(asyncio.wrap_future(_next_read(TABLES[_address(peer[0]).version])))
    return users.get((_row_address(*peer), _row_address(*own)))


def _next_read(path: str) -> Future[Users]:
    """A read of a table that has not begun yet."""
    with _lock:
        if path not in _next_reads:
            _next_reads[path] = _reader.submit(_read, path)
        return _next_reads[path]


def _read(path: str) -> Users:
    with _lock:
        del _next_reads[path]
    return _users_in(Path(path).read_text())


def _users_in(table: str) -> Users:
    rows = (line.split() for line in table.splitlines() if f" {ESTABLISHED} " in line)
    return {(row[1], row[2]): int(row[7]) for row in rows if row[3] == ESTABLISHED}


def _address(host: str) -> IPv4Address | IPv6Address:
    return ip_address(host.partition("%")[0])


def _row_address(host: str, port: int) -> str:
    """Format an address as the table has it: words of four bytes in this machine's order, and the port."""
    address = _address(host)
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    packed = socket.inet_pton(family, str(address))
    groups = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{group:08X}" for group in groups) + f":{port:04X}"


_reader = ThreadPoolExecutor(1, thread_name_prefix="peer-user")
_next_reads: dict[str, Future[Users]] = {}
_lock = Lock()
