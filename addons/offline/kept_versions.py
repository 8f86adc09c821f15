"""The last edit of the rules and the versions given before it, kept for the next process.

`addons.rules.given_versions` says what they are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import orjson

from addons.offline.copies import DiskCopies
from addons.offline.copy_meta import list_watch_of
from addons.rules.given_versions import GivenVersions, RulesEdit

TABLE = "rules"
NAME = "edit"


class KeptVersions:
    """One row of the database."""

    def __init__(self, copies: DiskCopies) -> None:
        self.last: RulesEdit | None = None
        """What the disk holds. None where it holds nothing that can be read."""
        self._copied: set[str] = set()
        self._is_whole = False
        """The disk has all that an earlier process kept."""
        self._copies = copies
        self._writing: asyncio.Task[bool] | None = None

    async def open(self) -> None:
        """Read what an earlier process kept."""
        read = await self._copies.ask(lambda: (self._copies.disk.value(TABLE, NAME),))
        self._is_whole = read is not None and not self._copies.disk.lost
        kept = read[0] if read is not None else None
        self.last = _read(kept) if kept is not None else None
        metas = self._copies.disk.metas.values()
        self._copied = {list_watch_of(meta).type.group_resource for meta in metas if "question" in meta}

    def given(self) -> GivenVersions:
        """The versions that clients may hold, beginning with what an earlier process kept."""
        return GivenVersions(self.last, self.keep, self._copied, is_new=self._is_whole)

    def keep(self, edit: RulesEdit) -> None:
        """Have the disk hold this edit."""
        self.last = edit
        value = orjson.dumps({"digest": edit.digest, "versions": edit.versions, "former": edit.former})
        write = partial(self._copies.disk.put, TABLE, {NAME: value})
        self._writing = asyncio.create_task(self._copies.write(write), name="write of the rules' last edit")


def _read(kept: bytes) -> RulesEdit | None:
    try:
        found = orjson.loads(kept)
        return RulesEdit(
            str(found["digest"]), _versions(found["versions"]), _versions(found.get("former", {}))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _versions(kept: Mapping[str, int]) -> dict[str, int]:
    return {str(resource): int(version) for resource, version in kept.items()}
