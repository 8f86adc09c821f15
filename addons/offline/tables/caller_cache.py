"""Stores the cloud's answers about callers on disk for the next process; `addons.views.known_callers` uses them.

The key of the digests is a separate file, made at the first start. Without that file the rows are useless.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.views.known_callers import KnownCallers
from kube.disk.atomic_file import read_file, write_file
from kube.disk.marks import Marks
from kube.disk.rows import table_of

TABLE = table_of("callers")
KEY_FILE = "callers.key"
KEY_BYTES = 32

logger = logging.getLogger(__name__)


class CallerCache:
    """A table of the database, and the file with the key."""

    def __init__(self, access: DiskAccess) -> None:
        self._access = access
        folder = access.disk.folder
        self._key_file = folder.with_name(KEY_FILE)
        # A forgotten token must not come back by a power cut, or because the disk was full.
        self._rows = WriteBehind(access, TABLE, marks=Marks(folder.with_name("callers.done")))
        self.known = KnownCallers(clock=access.clock)

    async def open(self) -> None:
        """Read the key, and the rows of an earlier process."""
        key = await asyncio.to_thread(_key_of, self._key_file)
        self.known = KnownCallers(key, self._access.clock)
        self.known.write_row = self._keep
        self._access.on_loss.append(self.known.write_all)
        await self._rows.open(self._take)

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        unreadable = self.known.load_rows(
            {name: row for name, row in rows.items() if name not in self._rows.waiting}
        )
        if unreadable:
            logger.warning("%d rows about callers cannot be read: asking the cloud again", len(unreadable))
        return unreadable

    def _keep(self, name: str, row: bytes | None) -> None:
        if row is None:
            self._rows.delete(name, may_be_unread=True)
        else:
            self._rows.put(
                name, row, is_urgent=True
            )  # the right to read a copy is written as soon as the copy


def _key_of(file: Path) -> bytes:
    """Read the key of a file, created if missing. A key that cannot be written is used by this process only."""
    try:
        key = read_file(file)
    except OSError:
        key = b""
    if len(key) >= KEY_BYTES:
        return key
    key = secrets.token_bytes(KEY_BYTES)
    try:
        write_file(file, key)
    except OSError as error:
        logger.warning(
            "%s cannot be written (%s): the cloud's reviews of callers are not stored", file, error
        )
    return key
