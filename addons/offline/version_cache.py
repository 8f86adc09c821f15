"""Stores the last edit of the rules, and the versions given before it, for the next process
(`addons.rules.issued_versions`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import orjson

from addons.offline.copies import DiskCopies
from addons.offline.tables.write_behind import WriteBehind
from addons.rules.issued_versions import IssuedVersions, RulesEdit
from kube.disk.rows import table_of

TABLE = table_of("rules")
NAME = "edit"


class VersionCache:
    """A row of the database."""

    def __init__(self, copies: DiskCopies) -> None:
        self.last: RulesEdit | None = None
        """The edit on disk; None if unreadable."""
        self._copies = copies
        self._row = WriteBehind(copies.access, TABLE)

    async def open(self) -> None:
        """Load an earlier process's edit."""
        await self._row.open(self._take)

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        edit = rows.get(NAME)
        self.last = self.last or (_read(edit) if edit is not None else None)
        return ()

    def given(self) -> IssuedVersions:
        """Return the versions that clients may hold, including those of an earlier process."""
        is_new = self._row.is_read and not self._copies.access.disk.lost and not self._copies.metas
        # Other data on disk is from a hub whose rules are unknown.
        return IssuedVersions(self.last or (None if is_new else RulesEdit("")), self.write_edit)

    def write_edit(self, edit: RulesEdit) -> None:
        """Write this edit to disk."""
        self.last = edit
        value = orjson.dumps({"digest": edit.digest, "versions": edit.versions, "former": edit.former})
        self._row.put(NAME, value, is_urgent=True)


def _read(data: bytes) -> RulesEdit | None:
    try:
        values = orjson.loads(data)
        return RulesEdit(
            str(values["digest"]), _versions(values["versions"]), _versions(values.get("former", {}))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _versions(data: Mapping[str, int]) -> dict[str, int]:
    return {str(resource): int(version) for resource, version in data.items()}
