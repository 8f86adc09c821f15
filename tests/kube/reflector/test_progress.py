"""Reads the cloud's writes of one kind since a version, by a short watch."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube.errors import StatusError
from kube.http.client import Client
from kube.reflector.history_verifier import HistoryDiverged
from kube.reflector.list_watch import ListWatch
from kube.reflector.progress import NoBookmark, newest_event
from kube.store.history import LastSeenEvent
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable import watch as scriptable_watch
from tests.cloud.sessions import new_session
from tests.kube.support.reflecting import SERVICES, service

WANTED = ListWatch(SERVICES, encoding=Encoding.JSON)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the bookmark at once, not after a second."""
    monkeypatch.setattr(scriptable_watch, "BOOKMARK_BEFORE_END", 2.99)


@pytest.fixture
async def client(cloud: ScriptableCloud) -> AsyncIterator[Client]:
    session = new_session()
    yield Client(session, cloud.url, {})
    await session.close()


def created_service(cloud: ScriptableCloud, name: str) -> LastSeenEvent:
    made = cloud.store.create(service(name))["metadata"]
    return LastSeenEvent((made["namespace"], name), int(made["resourceVersion"]))


def another_kind(cloud: ScriptableCloud, name: str) -> None:
    metadata = {"name": name, "namespace": "a"}
    cloud.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def test_a_kind_without_writes_is_current(cloud: ScriptableCloud, client: Client) -> None:
    known = created_service(cloud, "one").version
    another_kind(cloud, "other")
    now = cloud.store.version
    assert now > known
    assert await newest_event(client, WANTED, known, now) == (now, known)


async def test_the_newest_event_is_found_between_two_versions(cloud: ScriptableCloud, client: Client) -> None:
    known = created_service(cloud, "one").version
    newest = [created_service(cloud, name).version for name in ("two", "three")][-1]
    another_kind(cloud, "other")
    assert await newest_event(client, WANTED, known, newest) == (cloud.store.version, newest)


async def test_an_event_from_a_leader_is_verified_at_the_cloud(
    cloud: ScriptableCloud, client: Client
) -> None:
    last_event = created_service(cloud, "one")
    another_kind(cloud, "other")
    known = cloud.store.version
    assert await newest_event(client, WANTED, known, known, last_event) == (known, known)
    newest = created_service(cloud, "two").version
    assert await newest_event(client, WANTED, known, newest, last_event) == (newest, newest)


@pytest.mark.parametrize(
    "name", ["two", "another"], ids=["an event that is not known", "another event there"]
)
async def test_another_history_is_detected(cloud: ScriptableCloud, client: Client, name: str) -> None:
    last_event = created_service(cloud, "one")
    second = created_service(cloud, "two").version
    if name == "another":
        last_event = last_event._replace(key=("default", "another"))
    with pytest.raises(HistoryDiverged):
        await newest_event(client, WANTED, second, second, last_event)


async def test_the_watch_ends_if_the_cloud_does_not_reach_the_version(
    cloud: ScriptableCloud, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.reflector.progress.SECONDS", 1)
    known = created_service(cloud, "one").version
    with pytest.raises(NoBookmark):
        await newest_event(client, WANTED, known, known + 5)


async def test_the_clouds_410_for_an_old_version_is_raised(cloud: ScriptableCloud, client: Client) -> None:
    known = created_service(cloud, "one").version
    created_service(cloud, "two")
    cloud.store.compact()
    with pytest.raises(StatusError) as caught:
        await newest_event(client, WANTED, known, cloud.store.version)
    assert caught.value.code == 410
