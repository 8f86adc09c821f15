"""Looks up the user id of a process at the other end of a TCP connection, in the kernel's table of connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from threading import Lock

TABLES = {4: "/proc/net/tcp", 6: "/proc/net/tcp6"}
"""The kernel's connection table for each IP version. Only Linux has them."""
ESTABLISHED = "01"
"""The state of an open connection. A closed socket stays in the table for a while, with user 0."""

type Users = dict[tuple[str, str], int]
"""User id of each open connection, by the local and the remote address in the table's format."""


async def peer_user(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user id of the process at `peer` whose TCP connection leads to `own`, from the kernel's table of
    connections.

    None if the table has no such connection: the process is on another machine or in another network namespace, or has
    closed its socket. One read of the table serves all callers that were waiting before it began: with many connections
    the table is long, and one read for each caller could not keep up.
    """
    users = await asyncio.shield(asyncio.wrap_future(_next_read(TABLES[_address(peer[0]).version])))
    return users.get((_row_address(*peer), _row_address(*own)))


def _next_read(path: str) -> Future[Users]:
    """Return a scheduled read of the table that has not begun yet."""
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
    """Format an address like the table: groups of four bytes in this machine's byte order, then the port."""
    address = _address(host)
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    packed = socket.inet_pton(family, str(address))
    groups = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{group:08X}" for group in groups) + f":{port:04X}"


_reader = ThreadPoolExecutor(1, thread_name_prefix="peer-user")
_next_reads: dict[str, Future[Users]] = {}
_lock = Lock()
