"""Keys and values of the store's rows. Each value has a checksum, because SQLite does not detect corruption by the
disk."""

from __future__ import annotations

import zlib

END = "\x00"
"""Separates the parts of a key. No name of a Kubernetes object contains it."""
_CHECKSUM_SIZE = 4


def join(*parts: str) -> str:
    return END.join(parts)


def table_of(values: str) -> str:
    """The name of a table of named values. `kube.disk.copy_rows` names the tables of copies."""
    return join("v", values)


def checked(key: str, row: object) -> bytes | None:
    """Verify a row's checksum and return its value; None if the row is damaged."""
    if not isinstance(row, bytes):
        return None
    expected, value = row[:_CHECKSUM_SIZE], row[_CHECKSUM_SIZE:]
    return value if expected == checksum(key, value) else None


def checksum(key: str, value: bytes) -> bytes:
    """The checksum of key and value, so that a value under a wrong key counts as damaged."""
    return zlib.crc32(value, zlib.crc32(key.encode())).to_bytes(_CHECKSUM_SIZE)
