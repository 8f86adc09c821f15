"""Read the cloud's writes of one kind since a version, by a short watch."""

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
    """The bookmark comes at once, not after a second."""
    monkeypatch.setattr(scriptable_watch, "BOOKMARK_BEFORE_END", 2.99)


@pytest.fixture
async def client(cloud: ScriptableCloud) -> AsyncIterator[Client]:
    session = new_session()
    yield Client(session, cloud.url, {})
    await session.close()


def written(cloud: ScriptableCloud, name: str) -> LastSeenEvent:
    made = cloud.store.create(service(name))["metadata"]
    return LastSeenEvent((made["namespace"], name), int(made["resourceVersion"]))


def another_kind(cloud: ScriptableCloud, name: str) -> None:
    metadata = {"name": name, "namespace": "a"}
    cloud.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def test_a_quiet_kind_is_where_the_cloud_is(cloud: ScriptableCloud, client: Client) -> None:
    known = written(cloud, "one").version
    another_kind(cloud, "other")
    now = cloud.store.version
    assert now > known
    assert await newest_event(client, WANTED, known, now) == (now, known)


async def test_the_newest_event_is_found_between_two_versions(cloud: ScriptableCloud, client: Client) -> None:
    known = written(cloud, "one").version
    newest = [written(cloud, name).version for name in ("two", "three")][-1]
    another_kind(cloud, "other")
    assert await newest_event(client, WANTED, known, newest) == (cloud.store.version, newest)


async def test_the_cloud_shows_what_a_leader_has_brought(cloud: ScriptableCloud, client: Client) -> None:
    last_event = written(cloud, "one")
    another_kind(cloud, "other")
    known = cloud.store.version
    assert await newest_event(client, WANTED, known, known, last_event) == (known, known)
    newest = written(cloud, "two").version
    assert await newest_event(client, WANTED, known, newest, last_event) == (newest, newest)


@pytest.mark.parametrize(
    "name", ["two", "another"], ids=["an event that is not known", "another event there"]
)
async def test_another_history_is_noticed(cloud: ScriptableCloud, client: Client, name: str) -> None:
    last_event = written(cloud, "one")
    second = written(cloud, "two").version
    if name == "another":
        last_event = last_event._replace(key=("default", "another"))
    with pytest.raises(HistoryDiverged):
        await newest_event(client, WANTED, second, second, last_event)


async def test_a_cloud_that_does_not_get_there_is_asked_no_more(
    cloud: ScriptableCloud, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.reflector.progress.SECONDS", 1)
    known = written(cloud, "one").version
    with pytest.raises(NoBookmark):
        await newest_event(client, WANTED, known, known + 5)


async def test_a_version_that_is_too_old_is_the_clouds_answer(cloud: ScriptableCloud, client: Client) -> None:
    known = written(cloud, "one").version
    written(cloud, "two")
    cloud.store.compact()
    with pytest.raises(StatusError) as caught:
        await newest_event(client, WANTED, known, cloud.store.version)
    assert caught.value.code == 410
