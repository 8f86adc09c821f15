"""The offline parts together, and a source that starts from its copy or from the cloud's list, whichever is first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.copies import DiskCopies
from addons.offline.offline_tables import OfflineTables
from addons.requests.route_decision import RouteKind
from kube.concurrency.notifier import wait_for_any
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.observed import until
from tests.addons.support.offline_process import SETTINGS, Process
from tests.addons.support.samples import HUB, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Silence
from tests.cloud.scriptable.request_log import matching
from tests.cloud.sessions import new_session

EVENTS = "/api/v1/namespaces/a/events"


async def test_each_route_kind_has_its_answerer(tmp_path: Path) -> None:
    async with Process(tmp_path).running() as offline:
        assert set(offline.answerers) == {RouteKind.CACHED_RELAY, RouteKind.LOCAL}
        assert offline.answerers[RouteKind.CACHED_RELAY] is offline.cached_relay
        assert offline.cached_relay.offline_policy(HUB).node == SETTINGS.node


async def test_the_offline_report_has_the_lease_and_the_journal(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.health.failed("gone")
    async with process.running() as offline:
        offline.tables.journal.put_event("POST", EVENTS, "application/json", b"{}")
        assert offline.describe() == {
            "lease": {"node": "n1", "secondsSinceKubelet": None, "renewing": False},
            "journal": {"statuses": [], "events": 1, "unwritten": 1},
        }


async def test_pending_events_are_replayed_by_the_next_process(tmp_path: Path) -> None:
    first = Process(tmp_path)
    first.health.failed("gone")
    async with first.running() as offline:
        offline.tables.journal.put_event("POST", EVENTS, "application/json", b"{}")
    second = Process(tmp_path)
    second.health.failed("gone")
    async with second.running() as offline:
        assert len(offline.tables.journal.events) == 1
        assert not second.own.heard
        while not second.health.succeeded():
            pass
        second.cloud.changed.notify()
        await until(lambda: not offline.tables.journal.events)
    assert second.own.lines == [("POST", EVENTS)]
    assert not second.relaying.heard
    async with Process(tmp_path).running() as offline:
        assert not offline.tables.journal.events


async def test_tables_closed_before_the_parts_are_built_can_be_opened_again(tmp_path: Path) -> None:
    tables = OfflineTables.at(tmp_path)
    await tables.open()
    tables.close()
    # The database was closed properly: the next process can open it.
    async with Process(tmp_path).running() as offline:
        assert offline.tables.waiting() == 0


SERVICES = ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)


class StartingSource:
    def __init__(self, client: Client, copies: DiskCopies) -> None:
        self.store = Store()
        self.reflector = Reflector(client, SERVICES, self.store)
        self.copy = copies.copy("", SERVICES, self.store)
        self.task = asyncio.create_task(self.copy.start(self.reflector))

    async def shown(self) -> set[str]:
        """Return the names in the initial events."""
        async with asyncio.timeout(5):
            while self.copy.is_starting or not self.store.complete:
                await wait_for_any(self.store.next_update(), self.reflector.changed.wait())
        return {item.key[1] for item in self.store}

    async def end(self) -> None:
        self.copy.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def client(cloud: ScriptableCloud) -> AsyncIterator[Client]:
    session = new_session()
    yield Client(session, cloud.url, {})
    await session.close()


@pytest.fixture
async def stored_copies(cloud: ScriptableCloud, client: Client, copies: DiskCopies) -> None:
    """Put a Service in the cloud and on disk."""
    cloud.store.create(service("one"))
    first = StartingSource(client, copies)
    await first.shown()
    await first.end()
    await copies.access.guard(lambda: None)


@pytest.mark.usefixtures("stored_copies")
async def test_a_source_resumes_from_its_copy(
    cloud: ScriptableCloud, client: Client, copies: DiskCopies
) -> None:
    cloud.store.create(service("two"))
    again = StartingSource(client, copies)
    assert await again.shown() == {"one", "two"}
    assert again.reflector.lists == 0
    await again.end()


@pytest.fixture
async def slow_disk(
    stored_copies: None, copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[threading.Event]:
    """Delay all disk reads until the event is set."""
    monkeypatch.setattr("addons.offline.copies.DISK_TIMEOUT", 0.01)
    released = threading.Event()
    blocked = asyncio.create_task(copies.access.guard(released.wait))
    await asyncio.sleep(0)
    yield released
    await blocked


async def test_a_source_starts_from_the_cloud_if_the_disk_is_slow(
    client: Client, copies: DiskCopies, slow_disk: threading.Event
) -> None:
    again = StartingSource(client, copies)
    assert await again.shown() == {"one"}
    assert again.reflector.lists == 1
    slow_disk.set()
    await again.end()


async def test_a_source_starts_from_a_slow_disk_if_the_cloud_is_silent(
    cloud: ScriptableCloud, client: Client, copies: DiskCopies, slow_disk: threading.Event
) -> None:
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    again = StartingSource(client, copies)
    await silence.met.wait()
    assert not again.store.complete
    slow_disk.set()
    assert await again.shown() == {"one"}
    await again.end()
    silence.lift()
