"""An informer's copy of a kind: facts, indexes, handlers, and malformed objects; over the scriptable cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import orjson
import pytest

from controllers.runtime.informer import (
    Informer,
    Informers,
    ObjectSelection,
    WatchedResource,
    _TransformingStore,
    served_type,
    without_managed_fields,
)
from controllers.runtime.unstructured import metadata, texts
from kube.errors import internal, not_found
from kube.http.client import ApiResponse, Client
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.sessions import new_session
from tests.kube.support.answering import AnsweringClient, Asked

PATIENCE = 30.0
"""Seconds for an event on loopback."""


def read(obj: Json) -> str:
    """Return the label `value`; an object labelled `broken` raises."""
    labels = texts(metadata(obj).get("labels"))
    if "broken" in labels:
        raise ValueError("broken")
    return labels.get("value", "")


KIND = WatchedResource(
    ResourceType("", "v1", "configmaps"),
    read,
    indexers={"value": lambda value: [value]},
    selection=ObjectSelection("default"),
)


class Follower:
    """A running informer, and the notifications to its handler."""

    def __init__(self, informer: Informer[str]) -> None:
        self.informer = informer
        self.events: list[tuple[str, str | None, str | None, bool]] = []
        self._changed = asyncio.Event()
        informer.add_event_handler(self._handle)

    def _handle(self, key: Key, old: str | None, new: str | None, first: bool) -> None:
        self.events.append((key[1], old, new, first))
        self._changed.set()

    async def hears(self, count: int) -> list[tuple[str, str | None, str | None, bool]]:
        async with asyncio.timeout(PATIENCE):
            while len(self.events) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.events


def config_map(name: str, **labels: str) -> Json:
    meta = {"namespace": "default", "name": name, "labels": labels, "managedFields": []}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}}


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as started:
        yield started


@pytest.fixture
async def follower(cloud: ScriptableCloud) -> AsyncIterator[Follower]:
    cloud.store.create(config_map("first", value="x"))
    cloud.store.create(config_map("bad", broken="yes"))
    async with new_session() as session:
        informer = Informers(Client(session, cloud.url, {})).informer_for(KIND)
        following = Follower(informer)
        task = asyncio.ensure_future(informer.run())
        async with asyncio.timeout(PATIENCE):
            await informer.wait_for_sync()
        yield following
        task.cancel()
        await asyncio.wait([task])


async def test_an_informer_notifies_of_existing_and_changed_objects(
    cloud: ScriptableCloud, follower: Follower
) -> None:
    assert follower.events == [("bad", None, None, True), ("first", None, "x", True)] or follower.events == [
        ("first", None, "x", True),
        ("bad", None, None, True),
    ]
    cloud.store.create(config_map("second", value="y"))
    cloud.store.delete("configmaps", "first", "default")
    events = await follower.hears(4)
    assert events[2:] == [("second", None, "y", False), ("first", "x", None, False)]
    assert dict(follower.informer.items()) == {("default", "second"): "y"}


async def test_indexes_are_updated_with_objects(cloud: ScriptableCloud, follower: Follower) -> None:
    informer = follower.informer
    assert informer.by_index("value", "x") == [(("default", "first"), "x")]
    cloud.store.update(config_map("first", value="z"))
    await follower.hears(3)
    assert informer.by_index("value", "x") == []
    assert informer.by_index("value", "z") == [(("default", "first"), "z")]


DEEP = 5_000
"""Nested objects, as many as kube-apiserver accepts in managedFields from any writer of the object."""


@pytest.mark.parametrize("levels", [300, DEEP])
async def test_a_deeply_nested_object_does_not_stop_the_informer(levels: int) -> None:
    """This holds in a list and in a watch, at any depth; the object itself is read, too."""

    def nested(levels: int) -> Json:
        value: Json = {}
        for _ in range(levels):
            value = {"f:a": value}
        return value

    deep = config_map("deep", value="d") | {"data": nested(levels)}
    deep["metadata"] |= {"resourceVersion": "2", "managedFields": [{"fieldsV1": nested(levels)}]}
    store = _TransformingStore(without_managed_fields)
    codec = codec_for(Encoding.JSON)
    plain = config_map("plain", value="p")
    plain["metadata"]["resourceVersion"] = "1"
    store.replace(codec, "v1", "ConfigMap", 2, [write_json(plain), write_json(deep)])
    deep["metadata"]["resourceVersion"] = "3"
    store.apply("MODIFIED", write_json(deep))
    assert [(item.key[1], item.version) for item in store] == [("deep", 3), ("plain", 1)]
    [item, _] = store
    assert parse_object(item.raw)["data"] == nested(levels)


async def test_catching_up_waits_for_the_version(cloud: ScriptableCloud, follower: Follower) -> None:
    written = cloud.store.create(config_map("second", value="y"))
    await follower.informer.wait_until_observed(written)
    assert follower.informer.get(("default", "second")) == "y"
    await follower.informer.wait_until_observed({})


async def test_the_reported_number_of_objects_sums_all_informers_of_a_resource(
    cloud: ScriptableCloud,
) -> None:
    for name in ("one", "two", "three"):
        cloud.store.create(config_map(name))
    async with new_session() as session:
        informers = Informers(Client(session, cloud.url, {}))
        for chosen in ("metadata.name=one", "metadata.name!=one"):
            informers.informer_for(replace(KIND, selection=ObjectSelection(fields=chosen)))
        tasks = [asyncio.ensure_future(each.run()) for each in informers]
        async with asyncio.timeout(PATIENCE):
            for each in informers:
                await each.wait_for_sync()
        assert informers.objects("configmaps") == 3
        assert informers.objects("secrets") == 0
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_an_unknown_kind_is_refused_and_reported(cloud: ScriptableCloud) -> None:
    async with new_session() as session:
        kind = WatchedResource(ResourceType("none.example.com", "v1", "things"), read)
        informer = Informers(Client(session, cloud.url, {})).informer_for(kind)
        assert informer.sync_error == "not listed yet"
        task = asyncio.ensure_future(informer.run())
        async with asyncio.timeout(PATIENCE):
            await informer.wait_for_response()
        assert informer.refused
        assert informer.sync_error
        assert not informer.has_synced
        task.cancel()
        await asyncio.wait([task])


def test_managed_fields_are_dropped() -> None:
    assert without_managed_fields({"metadata": {"managedFields": [1], "name": "a"}}) == {
        "metadata": {"name": "a"}
    }


POOLS = ResourceType("apps.openyurt.io", "v1beta2", "nodepools")
VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")


class Discovery(AnsweringClient):
    """A server with some versions of the group and these resources; `broken` answers 500."""

    def __init__(self, versions: Mapping[str, list[str]], *, broken: bool = False) -> None:
        super().__init__()
        self._versions, self._broken = versions, broken

    async def answer(self, asked: Asked) -> ApiResponse:
        if self._broken:
            raise internal("etcd")
        version = asked.path.removeprefix("/apis/apps.openyurt.io/")
        if version not in self._versions:
            raise not_found(asked.path, "")
        resources = [{"name": name} for name in self._versions[version]]
        return ApiResponse("application/json", orjson.dumps({"resources": resources}))


@pytest.mark.parametrize(
    ("served", "version"),
    [
        ({"v1beta2": ["nodepools"], "v1beta1": ["nodepools"]}, "v1beta2"),
        ({"v1beta1": ["nodepools"], "v1alpha1": ["nodepools"]}, "v1beta1"),
        ({"v1beta2": ["others"], "v1alpha1": ["nodepools", "nodebuckets"]}, "v1alpha1"),
        ({"v1alpha1": ["nodepools/status"]}, None),
        ({}, None),
    ],
)
async def test_the_best_version_is_found(served: dict[str, list[str]], version: str | None) -> None:
    found = await served_type(Discovery(served), POOLS, VERSIONS)
    assert (found.version if found else None) == version


async def test_a_failed_discovery_leaves_the_kind_undecided() -> None:
    with pytest.raises(Exception, match="etcd"):
        await served_type(Discovery({}, broken=True), POOLS, VERSIONS)
