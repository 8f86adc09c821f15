"""Puts together what lets the node do without the cloud: the disk, copies, journal and the node's lease."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from addons.answers import Answers
from addons.backed import Backed
from addons.copies import Copies
from addons.garbage import Garbage
from addons.health import Cloud
from addons.journal import TABLE, Journal
from addons.kept_objects import KeptObjects
from addons.node_lease import NodeLease
from addons.offline_writes import OfflineWrites
from addons.origin import Answerer
from addons.registration import Registration
from addons.replay import Replay
from addons.reviews import Reviews
from addons.routing import Kind
from addons.settings import Settings
from addons.sources import Sources
from addons.status_writes import StatusWrites
from addons.tokens import Tokens
from kube.client import Client
from kube.disk import Disk
from kube.disk_writer import DiskWriter
from kube.pulse import Pulse


class Offline:
    """The parts, from `open` to `close`. `build` makes those that need the hub's other parts."""

    def __init__(self, folder: Path) -> None:
        self.copies = Copies(Disk(folder), DiskWriter())
        self._answers = Answers(self.copies)
        self._journal = Journal(self.copies)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Take up what an earlier process kept."""
        await self.copies.open()
        await self._answers.open()
        await self._journal.open()

    def build(
        self,
        settings: Settings,
        own: Client,
        relaying: Client,
        cloud: Cloud,
        changed: Pulse,
        reviews: Reviews,
        sources: Sources,
    ) -> None:
        """Start to work. `own` sends the hub's own requests, `relaying` those of others as they are."""
        objects = KeptObjects(sources, settings.wait)
        status = StatusWrites(objects, self._answers, self._journal, own)
        replay = Replay(self._journal, own, lambda: cloud.is_up, changed, status.refused)
        registration = Registration(objects, self._answers)
        writes = OfflineWrites(status, Tokens(self._answers), registration, self._journal, replay)
        self.backed = Backed(settings.node, relaying, cloud, reviews, objects, self._answers, writes)
        self._lease = NodeLease(settings.node, own, self._answers, lambda: cloud.is_up, changed)
        garbage = Garbage(
            self.copies, self._answers, sources, settings.node, settings.keep_days, lambda: cloud.is_up
        )
        self._tasks = [
            asyncio.create_task(replay.run(), name="replay of the journal"),
            asyncio.create_task(self._lease.run(), name="renewal of the lease"),
            asyncio.create_task(garbage.run(), name="garbage on disk"),
        ]

    @property
    def answerers(self) -> dict[Kind, Answerer]:
        return {Kind.BACKED: self.backed, Kind.LOCAL: self._lease}

    def describe(self) -> dict[str, Any]:
        """For people."""
        return {"lease": self._lease.describe(), "journal": self._journal.describe()}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.copies.close(TABLE, self._journal.take())
