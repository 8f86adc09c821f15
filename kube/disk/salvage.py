"""Reads what can be read of a store that is damaged, or of another format."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection
from pathlib import Path

from kube.disk.reading import connected
from kube.disk.rows import checked

_FORWARD = "SELECT key, value FROM Cache NOT INDEXED ORDER BY rowid"
_BACKWARD = f"{_FORWARD} DESC"


def salvaged(database: Path, prefixes: Collection[str]) -> dict[str, bytes]:
    """The whole values whose keys begin so. A damaged page hides neither what is before it nor what is behind it."""
    found: dict[str, bytes] = {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connected(database)) as connection:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        for statement in (_FORWARD, _BACKWARD):
            with contextlib.suppress(sqlite3.Error):
                for key, value in connection.execute(statement):
                    if isinstance(key, str) and key.startswith(tuple(prefixes)):
                        whole = checked(key, value)
                        found |= {} if whole is None else {key: whole}
    return found
