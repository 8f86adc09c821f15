"""The offline parts together: what one process left the next takes up, and the tasks that bring it to the cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from addons.health import Cloud, ServerHealth
from addons.offline import Offline
from addons.options import OPTIONS
from addons.reviews import Reviews
from addons.routing import Kind
from addons.settings import parse_server, parse_settings
from addons.sources import Sources
from kube.pulse import Pulse
from tests.addons.observed import until
from tests.addons.offline_parts import Told

SERVER = "https://a:6443"
SETTINGS = parse_settings(
    {name: default for name, _, default, _ in OPTIONS} | {"server": SERVER, "node": "n1"}
)
EVENTS = "/api/v1/namespaces/a/events"


class Process:
    """A hub's offline parts, on a cloud that says what it is told."""

    def __init__(self, folder: Path) -> None:
        self.offline = Offline(folder)
        self.health = ServerHealth(parse_server(SERVER))
        self.changed = Pulse()
        self.own, self.relaying = Told(), Told()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Offline]:
        before = asyncio.all_tasks()
        await self.offline.open()
        sources = Sources(lambda _: self.own, lambda *_: None, 300, self.offline.copies)
        cloud = Cloud([self.health], "priority")
        reviews = Reviews(lambda _: self.own)
        self.offline.build(SETTINGS, self.own, self.relaying, cloud, self.changed, reviews, sources)
        try:
            yield self.offline
        finally:
            self.offline.close()
            sources.close()
            await until(lambda: asyncio.all_tasks() <= before)


async def test_each_kind_of_route_has_its_answerer(tmp_path: Path) -> None:
    async with Process(tmp_path).running() as offline:
        assert set(offline.answerers) == {Kind.BACKED, Kind.LOCAL}
        assert offline.answerers[Kind.BACKED] is offline.backed
        assert offline.backed.standby.node == SETTINGS.node


async def test_people_see_the_lease_and_what_waits(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.health.failed("gone")
    async with process.running() as offline:
        offline._journal.put_event("POST", EVENTS, "application/json", b"{}")
        assert offline.describe() == {
            "lease": {"node": "n1", "secondsSinceKubelet": None, "renewing": False},
            "journal": {"statuses": [], "events": 1, "unwritten": 1},
        }


async def test_what_waits_at_the_end_is_brought_to_the_cloud_by_the_next_process(tmp_path: Path) -> None:
    first = Process(tmp_path)
    first.health.failed("gone")
    async with first.running() as offline:
        offline._journal.put_event("POST", EVENTS, "application/json", b"{}")
    second = Process(tmp_path)
    second.health.failed("gone")
    async with second.running() as offline:
        assert len(offline._journal.events) == 1
        assert not second.own.heard
        while not second.health.succeeded():
            pass
        second.changed.beat()
        await until(lambda: not offline._journal.events)
    assert second.own.lines == [("POST", EVENTS)]
    assert not second.relaying.heard
    async with Process(tmp_path).running() as offline:
        assert not offline._journal.events


async def test_an_end_before_the_parts_were_built_is_an_end(tmp_path: Path) -> None:
    offline = Offline(tmp_path)
    await offline.open()
    offline.close()
