"""Which user of this node has the other end of a TCP connection, from the kernel's table of connections."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address, ip_address

TABLES = {4: "/proc/net/tcp", 6: "/proc/net/tcp6"}
"""By the version of IP. Linux alone has them."""
ESTABLISHED = "01"
"""A socket that its program has closed stays in the table for a while as one of user 0."""


def table_of(host: str) -> str:
    """The file that has the connections of an address."""
    return TABLES[ip_address(host).version]


def user_of(table: str, peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user id of the program at `peer` that is connected to `own`.

    None when the table has no such connection: the program is on another machine, in another network namespace, or
    has closed its socket.
    """
    wanted = [_row_address(*peer), _row_address(*own), ESTABLISHED]
    for line in table.splitlines():
        fields = line.split()
        if fields[1:4] == wanted:
            return int(fields[7])
    return None


def _row_address(host: str, port: int) -> str:
    """As the table has it: the address in words of four bytes in this machine's order, and the port."""
    address = ip_address(host.partition("%")[0])
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    packed = socket.inet_pton(family, str(address))
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
