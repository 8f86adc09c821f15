"""A hub's offline parts from start to end, on a scripted cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from addons.filters.inputs import HubAddress
from addons.inputs.filter_inputs import FilterInputs
from addons.link.cloud_access import CloudAccess
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.offline.offline_mode import Offline
from addons.offline.offline_tables import OfflineTables
from addons.settings import parse_settings
from addons.views.reviews import Reviews
from addons.views.sources import CloudReads, Sources
from tests.addons.support.offline_parts import FixedClients, QueuedAnswers
from tests.addons.support.offline_world import never
from tests.addons.support.unfiltered import unfiltered

SERVER = "https://a:6443"
SETTINGS = parse_settings({"server": SERVER, "node": "n1"})


class Process:
    """A hub's offline parts, on a scripted cloud."""

    def __init__(self, folder: Path) -> None:
        self._tables = OfflineTables.at(folder)
        self.health = ServerHealth(parse_server(SERVER))
        self.cloud = Cloud([self.health], "priority")
        self.own, self.relaying = QueuedAnswers(), QueuedAnswers()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Offline]:
        await self._tables.open()
        tables = self._tables
        sources = Sources(
            CloudReads(lambda _: self.own), unfiltered(), 300, tables.copies, running=tables.running
        )
        reviews = Reviews(lambda _: self.own, 3600)
        cloud = CloudAccess(self.cloud, FixedClients(self.own, self.relaying), never)
        inputs = FilterInputs(SETTINGS.node, "", HubAddress((), 0), sources.get_own, sources.inputs_changed)
        offline = Offline(self._tables, SETTINGS, cloud, reviews, sources, inputs)
        offline.discover(None)
        try:
            yield offline
        finally:
            offline.close()
            sources.close()
            self._tables.close()
            await asyncio.gather(*offline._tasks, return_exceptions=True)
