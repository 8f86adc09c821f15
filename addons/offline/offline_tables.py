"""The tables on disk that serve an outage, read before the hub serves, and written last."""

from __future__ import annotations

import asyncio
from pathlib import Path

from addons.offline.accepted.accepted_writes import AcceptedWrites
from addons.offline.cached_responses import CachedResponses
from addons.offline.copies import DiskCopies
from addons.offline.tables.caller_cache import CallerCache
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.version_cache import VersionCache
from addons.offline.writes.journal import TABLE, Journal
from addons.offline.writes.offline_leases import OfflineLeases
from addons.rules.issued_versions import IssuedVersions
from addons.views.known_callers import KnownCallers
from addons.views.sources import RunningSources
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.schemas.published import messages


class OfflineTables:
    """The tables on disk that serve an outage, from `open` to `close`."""

    def __init__(self, copies: DiskCopies) -> None:
        self.copies, self.access = copies, copies.access
        self.answers = CachedResponses(self.access)
        self.copies.on_restore.append(self.answers.forget_all)
        self.running: RunningSources = {}
        """The sources that read from the copies; empty until the tables are open."""
        self.accepted = AcceptedWrites(self.access, self.answers, self.copies, self.running.values())
        self.journal = Journal(self.access)
        self._edit = VersionCache(self.copies)
        self._callers = CallerCache(self.access)
        self.leases = OfflineLeases(self.access)
        self.copies.on_restore.append(self.leases.forget_all)

    @classmethod
    def at(cls, folder: Path) -> OfflineTables:
        return cls(DiskCopies(DiskAccess(Disk(folder, saved=(TABLE,)), DiskWriter())))

    async def open(self) -> None:
        """Load an earlier process's state, and the schema that decodes kubelet's first status."""
        await asyncio.to_thread(messages)
        await self.copies.open()
        await self.answers.open()
        await self.accepted.open()
        await self.journal.open()
        await self._edit.open()
        await self._callers.open()
        await self.leases.open()

    @property
    def known_callers(self) -> KnownCallers:
        """The cloud's answers about callers, including those of an earlier process."""
        return self._callers.known

    def issued_versions(self) -> IssuedVersions:
        """The versions that clients may hold, including those that an earlier process sent."""
        return self._edit.given()

    def waiting(self) -> int:
        """The number of writes that wait for the cloud."""
        return len(self.journal.statuses) + len(self.journal.events)

    def close(self) -> None:
        """Write pending rows."""
        self.access.close()
