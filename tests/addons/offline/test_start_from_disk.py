"""A source with a copy on disk: clients see the copy once the cloud resumes from it, or the list that came first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from addons.offline.copies import DiskCopies
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.samples import service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Silence
from tests.cloud.scriptable.request_log import matching
from tests.cloud.sessions import new_session

SERVICES = ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)


class Beginning:
    """A source that begins."""

    def __init__(self, client: Client, copies: DiskCopies) -> None:
        self.store = Store()
        self.reflector = Reflector(client, SERVICES, self.store)
        self.copy = copies.copy("", SERVICES, self.store)
        self.restoring = self.copy.start(self.reflector)
        self.task = asyncio.create_task(self.restoring.run())

    async def shown(self) -> set[str]:
        """What is shown first."""
        async with asyncio.timeout(5):
            while self.restoring.pending or not self.store.complete:
                moved = asyncio.ensure_future(self.store.next_update())
                changed = asyncio.ensure_future(self.reflector.changed.wait())
                await asyncio.wait((moved, changed), return_when=asyncio.FIRST_COMPLETED)
                moved.cancel()
                changed.cancel()
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
async def kept(cloud: ScriptableCloud, client: Client, copies: DiskCopies) -> None:
    """One service, in the cloud and on disk."""
    cloud.store.create(service("one"))
    first = Beginning(client, copies)
    await first.shown()
    await first.end()
    await copies.access.guard(lambda: None)


@pytest.mark.usefixtures("kept")
async def test_the_cloud_goes_on_from_the_copy(
    cloud: ScriptableCloud, client: Client, copies: DiskCopies
) -> None:
    cloud.store.create(service("two"))
    again = Beginning(client, copies)
    assert await again.shown() == {"one", "two"}
    assert again.reflector.lists == 0
    await again.end()


@pytest.mark.usefixtures("kept")
async def test_a_slow_disk_is_not_waited_for_while_the_cloud_answers(
    client: Client, copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.start_from_disk.PATIENCE", 0.01)
    released = threading.Event()
    blocked = asyncio.create_task(copies.access.guard(released.wait))
    await asyncio.sleep(0)
    again = Beginning(client, copies)
    assert await again.shown() == {"one"}
    assert again.reflector.lists == 1
    assert not blocked.done()
    released.set()
    await blocked
    await again.end()


@pytest.mark.usefixtures("kept")
async def test_a_slow_disk_is_what_there_is_while_the_cloud_is_silent(
    cloud: ScriptableCloud, client: Client, copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.start_from_disk.PATIENCE", 0.01)
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    released = threading.Event()
    blocked = asyncio.create_task(copies.access.guard(released.wait))
    await asyncio.sleep(0)
    again = Beginning(client, copies)
    await silence.met.wait()
    assert not again.store.complete
    released.set()
    assert await again.shown() == {"one"}
    await blocked
    await again.end()
    silence.lift()
