"""Verification of a large copy after a break: by one object and the object count, or else by all names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kube.http.client import Client
from kube.reflector import history_verifier, questions
from kube.reflector.list_pages import Ask, read_version
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import LoggedRequest, matching
from tests.kube.support.reflecting import Start, copied, equal, service, until

NAMES = matching(verb="list", resource="services")


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_verifier, "FEW_OBJECTS", 1)


def lists_all_names(request: LoggedRequest) -> bool:
    return NAMES(request) and "as=Partial" in request.accept and "limit=1" not in request.query.split("&")


async def listed(cloud: ScriptableCloud, start: Start) -> tuple[Reflector, Store]:
    """Return a copy equal to the cloud, without an event."""
    for name in ("one", "two", "three"):
        cloud.store.create(service(name))
    return await following(cloud, start)


async def following(cloud: ScriptableCloud, start: Start) -> tuple[Reflector, Store]:
    store = Store()
    reflector = start(store)
    await until(reflector, store, copied(reflector, store, cloud))
    return reflector, store


async def is_proven_again(cloud: ScriptableCloud, reflector: Reflector, store: Store) -> None:
    before = reflector.watches
    await cloud.stop()
    await cloud.start()
    await until(reflector, store, lambda: reflector.watches > before and reflector.is_proven)


async def test_a_list_without_later_events_is_verified_without_names(
    cloud: ScriptableCloud, start: Start
) -> None:
    """The names of 1,000 objects were once requested after each break of the link: 81 KB."""
    reflector, store = await listed(cloud, start)
    await is_proven_again(cloud, reflector, store)
    assert not cloud.requests.where(lists_all_names)
    assert reflector.lists == 1


async def test_names_are_requested_from_a_server_that_only_estimates_the_count(
    cloud: ScriptableCloud, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def estimated(ask: Ask, query: Mapping[str, str]) -> tuple[int, int | None]:
        version, count = await read_version(ask, query)
        return version, (count or 0) + 1

    monkeypatch.setattr(questions, "read_version", estimated)
    reflector, store = await listed(cloud, start)
    await cloud.stop()
    await cloud.start()
    await cloud.requests.until(lists_all_names)
    cloud.store.create(service("later"))
    await until(reflector, store, lambda: equal(store, cloud) and reflector.is_proven)
    assert reflector.lists == 1


async def test_a_restored_cloud_is_detected_by_objects_that_were_deleted(
    cloud: ScriptableCloud, start: Start
) -> None:
    """The restored cloud has advanced past the list's version, without an event of this kind."""
    for name in ("one", "gone", "two"):
        cloud.store.create(service(name))
    backup = cloud.store.snapshot()
    cloud.store.delete("services", "gone", "default")
    reflector, store = await following(cloud, start)
    found = asyncio.Event()
    reflector.restored = found.set
    cloud.store.restore(backup)
    for number in range(5):
        cloud.store.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}", "namespace": "a"}}
        )
    await until(reflector, store, lambda: found.is_set() and copied(reflector, store, cloud)())


async def test_a_restored_cloud_undoes_an_accepted_write_once_it_has_passed_its_version(
    cloud: ScriptableCloud, start: Start
) -> None:
    """The cloud was restored to the version of the copy, so nothing but the missing event says so."""
    reflector, store = await listed(cloud, start)
    before = cloud.store.snapshot()
    await cloud.stop()
    item = next(iter(store))
    written = item.raw.replace(b'"text":""', b'"text":"new"')
    store.apply_response(item.key, store.codec.with_version(written, store.version + 3))
    assert store.applied
    cloud.store.restore(before)
    await cloud.start()
    for number in range(3):
        cloud.store.create(service(f"later{number}"))
    await until(reflector, store, lambda: equal(store, cloud) and not store.applied)
    assert (undone := store.get(item.key)) is not None
    assert undone.raw == item.raw
    assert reflector.lists == 2


async def test_an_expired_version_is_counted_at_the_current_version(
    cloud: ScriptableCloud, start: Start
) -> None:
    reflector, store = await listed(cloud, start)
    cloud.faults.add(Refuse(410), times=1, when=lambda request: "Exact" in request.query)
    await is_proven_again(cloud, reflector, store)
    assert not cloud.requests.where(lists_all_names)


async def test_many_names_are_transferred_with_gzip(
    cloud: ScriptableCloud, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-apiserver compresses JSON over 128 KiB, but no protobuf."""
    monkeypatch.setattr(questions, "MANY_NAMES", 3)
    reflector, store = await listed(cloud, start)
    client: Client = reflector.client
    asked = questions.Questions(reflector._list_watch._replace(encoding=Encoding.PROTOBUF))
    for about, first in ((2, Encoding.PROTOBUF), (3, Encoding.JSON)):
        assert len((await asked.names(client.request, about))[1]) == len(store)
        assert cloud.requests.where(lists_all_names)[-1].accept.startswith(f"{first};as=Partial")
    assert reflector.state is State.WATCHING
