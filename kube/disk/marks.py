"""Marks rows as done in a file of fixed size, so that a mark can be written even on a full disk.

SQLite needs free space to delete a row. Without marks, a crash would let the hub replay a write that it has
already replayed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from kube.disk.atomic_file import read_file

MAX_MARKS = 4096
"""The most rows that can be marked at once: more than the journal can have."""
_LENGTH = 8


def mark_of(name: str, value: bytes) -> bytes:
    """The fingerprint of a row. A later row with the same name has another fingerprint."""
    return hashlib.sha256(name.encode() + b"\0" + value).digest()[:_LENGTH]


class Marks:
    """The marks in `file`. All calls block, and raise OSError if the disk fails."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def prepare(self) -> None:
        """Allocate the file in its full size, and keep existing marks."""
        with open(os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+b") as opened:
            there = opened.seek(0, os.SEEK_END)
            if there < MAX_MARKS * _LENGTH:
                opened.write(bytes(MAX_MARKS * _LENGTH - there))
                opened.flush()
                os.fsync(opened.fileno())

    def read(self) -> set[bytes]:
        """Read the marks; an empty set if the file does not exist."""
        try:
            data = read_file(self._file)
        except FileNotFoundError:
            return set()
        return {data[at : at + _LENGTH] for at in range(0, len(data), _LENGTH)} - {bytes(_LENGTH)}

    def write(self, marks: Collection[bytes]) -> bool:
        """Replace all marks in place, up to MAX_MARKS. Always return True."""
        packed = b"".join(sorted(marks)[:MAX_MARKS])
        with self._file.open("r+b", buffering=0) as opened:
            opened.write(packed.ljust(MAX_MARKS * _LENGTH, b"\0"))
            os.fsync(opened.fileno())
        return True
