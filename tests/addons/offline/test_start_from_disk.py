"""A source with a copy on disk: clients see the copy once the cloud resumes from it, or the list that came first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from addons.offline.copies import DiskCopies
from kube.concurrency.pulse import first_of
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
        self.task = asyncio.create_task(self.copy.start(self.reflector))

    async def shown(self) -> set[str]:
        """What is shown first."""
        async with asyncio.timeout(5):
            while self.copy.is_starting or not self.store.complete:
                await first_of(self.store.next_update(), self.reflector.changed.wait())
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


@pytest.fixture
async def slow_disk(
    kept: None, copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[threading.Event]:
    """A disk that answers nothing until the event is set."""
    monkeypatch.setattr("addons.offline.copies.PATIENCE", 0.01)
    released = threading.Event()
    blocked = asyncio.create_task(copies.access.guard(released.wait))
    await asyncio.sleep(0)
    yield released
    await blocked


async def test_a_slow_disk_is_not_waited_for_while_the_cloud_answers(
    client: Client, copies: DiskCopies, slow_disk: threading.Event
) -> None:
    again = Beginning(client, copies)
    assert await again.shown() == {"one"}
    assert again.reflector.lists == 1
    slow_disk.set()
    await again.end()


async def test_a_slow_disk_is_what_there_is_while_the_cloud_is_silent(
    cloud: ScriptableCloud, client: Client, copies: DiskCopies, slow_disk: threading.Event
) -> None:
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    again = Beginning(client, copies)
    await silence.met.wait()
    assert not again.store.complete
    slow_disk.set()
    assert await again.shown() == {"one"}
    await again.end()
    silence.lift()
