"""Marks rows of the store as done in a file of fixed size, so that a mark can be written on a full disk.

SQLite needs free space to delete a row. Without a mark, a replayed write that is still on disk would be replayed
again after a crash.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from kube.disk.atomic_file import read_file

MAX_MARKS = 4096
"""Rows that can be marked at once: more than the journal has."""
_LENGTH = 8


def mark_of(name: str, value: bytes) -> bytes:
    """The fingerprint of a row. A later row of the same name has another one."""
    return hashlib.sha256(name.encode() + b"\0" + value).digest()[:_LENGTH]


class Marks:
    """The marks in `file`. All calls block, and raise OSError where the disk fails."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def prepare(self) -> None:
        """Give the file its full size. Its marks stay."""
        with open(os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+b") as opened:
            there = opened.seek(0, os.SEEK_END)
            if there < MAX_MARKS * _LENGTH:
                opened.write(bytes(MAX_MARKS * _LENGTH - there))
                opened.flush()
                os.fsync(opened.fileno())

    def read(self) -> set[bytes]:
        """The marks; none where there is no file."""
        try:
            data = read_file(self._file)
        except FileNotFoundError:
            return set()
        return {data[at : at + _LENGTH] for at in range(0, len(data), _LENGTH)} - {bytes(_LENGTH)}

    def write(self, marks: Collection[bytes]) -> bool:
        """Replace all marks, in place; those beyond MAX_MARKS are left out. Always True."""
        packed = b"".join(sorted(marks)[:MAX_MARKS])
        with self._file.open("r+b", buffering=0) as opened:
            opened.write(packed.ljust(MAX_MARKS * _LENGTH, b"\0"))
            os.fsync(opened.fileno())
        return True
