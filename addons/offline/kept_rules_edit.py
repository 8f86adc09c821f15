"""The last edit of the rules, kept on disk for the next process: see `addons.rules.edits`."""

from __future__ import annotations

import asyncio
from functools import partial

import orjson

from addons.offline.copies import DiskCopies
from addons.rules.edits import RulesEdit

TABLE = "rules"
NAME = "edit"


class KeptRulesEdit:
    """One row of the database."""

    def __init__(self, copies: DiskCopies) -> None:
        self.last: RulesEdit | None = None
        """What the disk holds. None where it holds nothing that can be read."""
        self.newest_copy = 0
        """The newest version of all copies that an earlier process left on disk."""
        self._copies = copies
        self._writing: asyncio.Task[bool] | None = None

    async def open(self) -> None:
        """Read what an earlier process kept."""
        kept = await self._copies.ask(lambda: self._copies.disk.value(TABLE, NAME))
        self.last = _read(kept) if kept is not None else None
        versions = [meta.get("version") for meta in self._copies.disk.metas.values()]
        self.newest_copy = max((version for version in versions if isinstance(version, int)), default=0)

    def keep(self, edit: RulesEdit) -> None:
        """Have the disk hold this edit."""
        self.last = edit
        value = orjson.dumps({"digest": edit.digest, "version": edit.version})
        write = partial(self._copies.disk.put, TABLE, {NAME: value})
        self._writing = asyncio.create_task(self._copies.write(write), name="write of the rules' last edit")


def _read(kept: bytes) -> RulesEdit | None:
    try:
        found = orjson.loads(kept)
        return RulesEdit(str(found["digest"]), int(found["version"]))
    except (ValueError, KeyError, TypeError):
        return None
