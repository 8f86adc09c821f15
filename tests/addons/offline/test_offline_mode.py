"""The offline parts together: the next process takes up what one left, and brings it to the cloud."""

from __future__ import annotations

from pathlib import Path

from addons.offline.offline_mode import Offline
from addons.requests.route_decision import RouteKind
from tests.addons.support.observed import until
from tests.addons.support.offline_process import SETTINGS, Process
from tests.addons.support.samples import HUB

EVENTS = "/api/v1/namespaces/a/events"


async def test_each_kind_of_route_has_its_answerer(tmp_path: Path) -> None:
    async with Process(tmp_path).running() as offline:
        assert set(offline.answerers) == {RouteKind.CACHED_RELAY, RouteKind.LOCAL}
        assert offline.answerers[RouteKind.CACHED_RELAY] is offline.cached_relay
        assert offline.cached_relay.offline_policy(HUB).node == SETTINGS.node


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
        second.cloud.changed.notify()
        await until(lambda: not offline._journal.events)
    assert second.own.lines == [("POST", EVENTS)]
    assert not second.relaying.heard
    async with Process(tmp_path).running() as offline:
        assert not offline._journal.events


async def test_an_end_before_the_parts_were_built_is_an_end(tmp_path: Path) -> None:
    offline = Offline(tmp_path)
    await offline.open()
    offline.close()
    # The database is closed whole: the next process opens it.
    async with Process(tmp_path).running() as offline:
        assert offline.waiting() == 0
