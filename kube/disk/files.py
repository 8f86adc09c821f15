"""Prepares and checks the files of the store before SQLite opens them. All errors are OSError or sqlite3.Error."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

PAGE = 4096
"""Bytes that a file system allocates at once."""


def make_private(folder: Path, database: Path) -> None:
    """Let only the owner read. This makes the database, because SQLite gives its other files the same mode."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.close(os.open(database, os.O_CREAT | os.O_RDWR, 0o600))
    database.chmod(0o600)


def check(database: Path, timeout: float) -> None:
    """Fail when the file is no database, or is locked: diskcache would wait a minute for the lock."""
    with contextlib.closing(sqlite3.connect(database, timeout=timeout, isolation_level=None)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def try_to_write(folder: Path) -> None:
    """Fail when no file can be written in the folder. Leaves no file."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(PAGE))
