"""Garbage collection of copies: those unused for days while online, and those that no pod of the node mounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from addons.link.health import Cloud
from addons.offline.cached_response import ResponseKey
from addons.offline.copies import DiskCopies
from addons.offline.garbage import (
    COPY_OVERHEAD,
    DAY,
    INTERVAL,
    MAX_PARTS,
    Garbage,
    beyond_limit,
    unmounted,
    unused,
)
from addons.offline.tables.copy_meta import described, source_name
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.telemetry import metrics
from kube.disk.copy_rows import Meta
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.observed import ended
from tests.addons.support.offline_world import OfflineWorld
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.sessions import new_session
from tests.kube.support.recorded import single
from tests.support.objects import obj

NODE = "n1"
SERVICES = ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)
NODES = ListWatch(ResourceType("", "v1", "nodes"), encoding=Encoding.JSON)
PODS = ListWatch(
    ResourceType("", "v1", "pods"), field_selector=f"spec.nodeName={NODE}", encoding=Encoding.JSON
)


def object_of(resource: str, name: str, namespace: str = "default") -> ListWatch:
    """Return the list-watch with which kubelet reads an object that a pod mounts."""
    kind = ResourceType("", "v1", resource)
    return ListWatch(kind, namespace, field_selector=f"metadata.name={name}", encoding=Encoding.JSON)


def meta(list_watch: ListWatch, identity: str = "") -> Meta:
    return {"identity": identity, "question": described(list_watch)}


def test_copies_last_used_too_long_ago_are_unused() -> None:
    now = 100 * DAY
    asked = {"old": 86 * DAY, "young": 86 * DAY + 1, "to come": 200 * DAY, "of 1970": 0}
    assert unused(asked, now, 14) == {"old", "of 1970"}
    assert unused(asked, 10 * DAY, 14) == set()


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    ("list_watch", "gone"),
    [
        (object_of("configmaps", "rich", "fixtures"), False),
        (object_of("secrets", "rich", "fixtures"), False),
        (object_of("configmaps", "ric", "fixtures"), True),
        (object_of("configmaps", "richer", "fixtures"), True),
        (object_of("configmaps", "rich", "elsewhere"), True),
        (object_of("services", "other", "fixtures"), False),
        (ListWatch(ResourceType("", "v1", "secrets"), "fixtures"), False),
        (ListWatch(ResourceType("", "v1", "secrets"), field_selector="metadata.name=x"), False),
        (ListWatch(ResourceType("", "v1", "secrets"), "fixtures", field_selector="type=x"), False),
        (ListWatch(ResourceType("x", "v1", "secrets"), "fixtures", field_selector="metadata.name=x"), False),
    ],
)
def test_secrets_and_configmaps_that_no_pod_mounts_are_unmounted(
    encoding: Encoding, list_watch: ListWatch, gone: bool
) -> None:
    pods = [("fixtures", encoding, single("pods.single", encoding)[2])]
    assert unmounted({"it": meta(list_watch)}, pods) == ({"it"} if gone else set())


def test_secrets_read_by_another_identity_are_not_mounted_ones() -> None:
    assert unmounted({"it": meta(object_of("secrets", "x"), "somebody")}, []) == set()


def test_partial_copies_beyond_the_limit_are_evicted_by_last_use() -> None:
    parts = {
        name: {**meta(SERVICES._replace(label_selector=name)), "asked": asked, "bytes": MAX_PARTS // 2}
        for name, asked in (("a=1", 3), ("a=2", 1), ("a=3", 2))
    }
    rows_of_copy = {"whole": {**meta(SERVICES), "asked": 0, "bytes": 10 * MAX_PARTS}}
    assert beyond_limit(parts | rows_of_copy) == ["a=3", "a=2"]
    empty = {
        str(number): meta(SERVICES._replace(namespace="a"))
        for number in range(MAX_PARTS // COPY_OVERHEAD + 1)
    }
    assert len(beyond_limit(empty)) == 1


class Node(OfflineWorld):
    """A node's disk with a wall clock and an uptime clock that a test sets."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.wall, self.uptime = 1_000_000.0, 0.0
        super().__init__(
            DiskCopies(DiskAccess(Disk(folder / "cache"), DiskWriter(), lambda: self.wall)), client
        )
        self.is_up = True
        self.callers = self.tables.known_callers
        self.garbage = Garbage(self.tables, self.sources, NODE, 14, cast(Cloud, self), lambda: self.uptime)

    async def ask(self, *list_watches: ListWatch) -> None:
        """Put these copies on disk, without a running source."""
        for list_watch in list_watches:
            source = self.sources.get(HUB_IDENTITY, list_watch)
            await source.ready(5)
            source.close()
            del self.sources._sources["", list_watch]
        await self.settled()

    async def settled(self) -> None:
        """Return when no write is pending."""
        for table in list(self.copies.access.tables):
            assert isinstance(table, WriteBehind)
            await table.settled()
        await asyncio.sleep(0)
        await self.copies.access.guard(lambda: None)

    async def live(self, days: float) -> None:
        """Run the garbage collection as the hub's task does."""
        for _ in range(int(days * DAY / INTERVAL)):
            self.wall += INTERVAL
            self.uptime += INTERVAL
            await self.garbage.collect()

    def are_stored(self, *list_watches: ListWatch) -> list[bool]:
        return [source_name("", each) in self.copies.metas for each in list_watches]


@pytest.fixture
async def node(cloud: ScriptableCloud, tmp_path: Path) -> AsyncIterator[Node]:
    before = asyncio.all_tasks()
    session = new_session()
    made = Node(Client(session, cloud.url, {}), tmp_path)
    yield made
    made.copies.access.close()
    made.sources.close()
    await session.close()
    await ended(before)


async def test_unused_copies_and_responses_are_deleted_after_days(node: Node) -> None:
    await node.ask(SERVICES)
    node.answers.cache_response(ResponseKey("answer"), {}, b"body")
    await node.settled()
    counted = metrics.GARBAGE.labels("unused")._value.get()
    await node.live(13.9)
    await node.ask(NODES)
    assert node.are_stored(SERVICES, NODES) == [True, True]
    await node.live(1.2)
    assert node.are_stored(SERVICES, NODES) == [False, True]
    assert not node.answers.index
    assert metrics.GARBAGE.labels("unused")._value.get() == counted + 2


async def test_unwatched_partial_copies_beyond_the_limit_are_deleted_at_once(
    cloud: ScriptableCloud, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.store.create(pod("here", "x"))
    parts = [PODS._replace(field_selector="", label_selector=f"!x{number}") for number in range(3)]
    for part in parts:
        await node.ask(part)
        node.wall += DAY / 24
    one = node.copies.metas[source_name("", parts[0])]["bytes"] + COPY_OVERHEAD
    monkeypatch.setattr("addons.offline.garbage.MAX_PARTS", 2 * one)
    await node.garbage.collect()
    assert node.are_stored(*parts) == [False, True, True]


async def test_a_copy_with_a_running_source_is_not_deleted(node: Node) -> None:
    source = node.sources.get(HUB_IDENTITY, SERVICES)
    await source.ready(5)
    await node.settled()
    await node.live(30)
    assert node.are_stored(SERVICES) == [True]


async def test_nothing_is_deleted_offline_or_in_the_first_day_online(node: Node) -> None:
    await node.ask(SERVICES)
    node.is_up = False
    await node.live(30)
    node.is_up = True
    await node.live(0.9)
    assert node.are_stored(SERVICES) == [True]
    await node.live(0.2)
    assert node.are_stored(SERVICES) == [False]


async def test_a_clock_change_deletes_no_copy_in_use(node: Node) -> None:
    node.wall = 0.0  # the node boots with its clock in 1970
    await node.ask(SERVICES, NODES)
    node.wall = 1_700_000_000.0
    await node.live(0.5)
    await node.ask(SERVICES)
    await node.live(0.6)
    assert node.are_stored(SERVICES, NODES) == [True, False]
    node.wall -= 3600  # the clock is set back an hour
    await node.live(2)
    assert node.are_stored(SERVICES) == [True]


def pod(name: str, mounts: str, node: str = NODE) -> dict[str, Any]:
    volumes = [{"name": "v", "secret": {"secretName": mounts}}]
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    return obj("Pod", name, "default", spec=spec)


async def test_the_secret_of_a_deleted_pod_is_removed_once_the_pods_of_the_cloud_are_known(
    cloud: ScriptableCloud, node: Node
) -> None:
    cloud.store.create(pod("here", "used"))
    cloud.store.create(pod("gone", "unused"))
    cloud.store.create(pod("far", "elsewhere", "n2"))
    secrets = [object_of("secrets", name) for name in ("used", "unused", "elsewhere")]
    await node.ask(*secrets)
    await node.garbage.collect()
    assert node.are_stored(*secrets) == [True, True, True], "nobody knows which pods there are"
    pods = node.sources.get(HUB_IDENTITY, PODS)
    await pods.ready(5)
    while pods.reflector.state != "watching":
        await pods.reflector.changed.wait()
    await node.garbage.collect()
    assert node.are_stored(*secrets) == [True, True, False]
    cloud.store.delete("pods", "gone", "default")
    while len(pods.store) > 1:
        await pods.store.next_update()
    node.is_up = False
    await node.garbage.collect()
    assert node.are_stored(*secrets) == [True, True, False]
    node.is_up = True
    await node.garbage.collect()
    assert node.are_stored(*secrets) == [True, False, False]
    followed = node.sources.get(HUB_IDENTITY, secrets[1])
    await followed.ready(5)
    await node.settled()
    await node.garbage.collect()
    assert node.are_stored(*secrets) == [True, True, False]


async def test_garbage_collection_continues_after_an_unexpected_error(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.garbage.INTERVAL", 0.0)
    looks: list[int] = []

    async def look() -> None:
        looks.append(1)
        if len(looks) > 2:
            task.cancel()
        raise LookupError("a bug")

    monkeypatch.setattr(node.garbage, "collect", look)
    task = asyncio.create_task(node.garbage.run())
    await asyncio.gather(task, return_exceptions=True)
    assert len(looks) == 3
