"""A write that the cloud accepted is the newest state of its object; lost or overtaken responses; bounds."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from addons.offline.accepted import accepted_writes
from addons.requests.cloud_identity import HUB_IDENTITY
from kube.json_type import Json
from kube.requests.object_ref import ObjectRef
from kube.wire.encoding import Encoding
from tests.addons.support.offline_parts import JSON, PROTOBUF, asked
from tests.addons.support.samples import raw
from tests.addons.support.stored_maps import (
    EVERYWHERE,
    FORMER_ROWS,
    LIST,
    MAPS,
    OTHER,
    PATH,
    STORED_BEFORE,
    TABLE,
    World,
    config_map,
    list_of,
    world_in,
)

GONE: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "details": {"name": "x", "uid": "uid of x", "kind": "configmaps"},
}
REMOVED = config_map("old", 9, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)
"""The response to a deletion without grace period, and to the update that removes the last finalizer."""
DELETED_LATER = config_map("old", 9, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as made:
        yield made


class Write(NamedTuple):
    method: str
    target: str
    code: int
    answer: Json | bytes
    value: str
    """The value of x after the write; "" if x is deleted, "?" if the response does not show it."""
    accept: str = JSON


NEW_METADATA = {
    "kind": "PartialObjectMetadata",
    "apiVersion": "meta.k8s.io/v1",
    "metadata": config_map("new", 9)["metadata"],
}
WRITES = {
    "PUT": Write("PUT", PATH, 200, config_map("new", 9), "new"),
    "PUT in protobuf": Write("PUT", PATH, 200, config_map("new", 9), "new", PROTOBUF),
    "a PATCH": Write("PATCH", PATH, 200, config_map("new", 9), "new"),
    "an apply": Write("PATCH", f"{PATH}?fieldManager=m&force=true", 200, config_map("new", 9), "new"),
    "an apply that creates": Write("PATCH", f"{PATH}?fieldManager=m", 201, config_map("new", 9), "new"),
    "a status": Write("PUT", f"{PATH}/status", 200, config_map("new", 9), "new"),
    "a scale": Write("PUT", f"{PATH}/scale", 200, {"kind": "Scale", "apiVersion": "autoscaling/v1"}, "?"),
    "a binding": Write("POST", f"{PATH}/binding", 201, {**GONE, "details": None}, "?"),
    "an answer without a body": Write("PATCH", PATH, 200, b"", "?"),
    "a Table": Write("PUT", PATH, 200, {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}, "?"),
    "the metadata": Write("PATCH", PATH, 200, NEW_METADATA, "?"),
    "the metadata, packed": Write("PUT", PATH, 200, NEW_METADATA, "?", PROTOBUF),
    "YAML": Write("PUT", PATH, 200, b"kind: ConfigMap\ndata: {value: new}\n", "?", "application/yaml"),
    "DELETE, gone": Write("DELETE", PATH, 200, GONE, ""),
    "DELETE, the object": Write("DELETE", PATH, 200, config_map("old", 4), ""),
    "DELETE, without grace": Write("DELETE", PATH, 200, REMOVED, ""),
    "PATCH, the last finalizer": Write("PATCH", PATH, 200, REMOVED, "", PROTOBUF),
    "DELETE, finalizers": Write("DELETE", PATH, 202, DELETED_LATER, "old"),
    "DELETE, no uid": Write("DELETE", PATH, 200, {**GONE, "details": {"name": "x"}}, "?"),
    "a collection": Write("DELETE", LIST, 200, list_of(9, config_map("old", 4)), ""),
    "a collection with finalizers": Write("DELETE", LIST, 200, list_of(9, DELETED_LATER), "?"),
    "a collection, unread": Write("DELETE", LIST, 200, {"kind": "Status", "apiVersion": "v1"}, "?"),
    "a creation, generated": Write("POST", LIST, 201, config_map("new", 9), "new"),
}


@pytest.mark.parametrize("stored", STORED_BEFORE)
@pytest.mark.parametrize("kind", WRITES)
async def test_no_stored_copy_undoes_an_accepted_write(world: World, kind: str, stored: str) -> None:
    write = WRITES[kind]
    STORED_BEFORE[stored](world)
    await world.write(*write[:4], accept=write.accept)
    await check(world, write.value)


@pytest.mark.parametrize("stored", ["both", "a copy in protobuf", "a list"])
@pytest.mark.parametrize(
    "kind", ["PUT", "a scale", "DELETE, gone", "DELETE, finalizers", "a creation, generated"]
)
async def test_no_stored_copy_undoes_an_accepted_write_after_a_kill_of_the_hub(
    tmp_path: Path, kind: str, stored: str
) -> None:
    write = WRITES[kind]
    async with world_in(tmp_path) as world:
        STORED_BEFORE[stored](world)
        await world.answers.written()
        await world.write(*write[:4], accept=write.accept)
        copy_of_disk = tmp_path / "as it was"
        await asyncio.to_thread(shutil.copytree, tmp_path / "cache", copy_of_disk / "cache")
    async with world_in(copy_of_disk) as again:
        if "copy" in stored:
            STORED_BEFORE[stored](again)  # in the format of an earlier process
            for source in again.sources:
                again.copies.on_read[0](source.list_watch, source.store)
        await check(again, write.value)


async def check(world: World, value: str) -> None:
    may = {"?": (404, None), "": (404, None)}.get(value, (value, 404, None))
    for accept in (JSON, PROTOBUF):
        for identity in (HUB_IDENTITY, OTHER):
            found = await world.value(accept=accept, identity=identity)
            assert found in may, (accept, identity.user, found)
    table = await world.get(LIST, TABLE)
    assert not isinstance(table, dict) or table["rows"] != FORMER_ROWS
    for target in (LIST, EVERYWHERE):
        listed = await world.values(target)
        if isinstance(listed, dict) and value != "?":
            assert listed.get("x", "") == value
            assert listed.get("y", "as it was") == "as it was"


@pytest.mark.parametrize("stored", [JSON, PROTOBUF])
@pytest.mark.parametrize("accept", [JSON, PROTOBUF])
async def test_an_accepted_write_updates_the_copies_of_each_encoding_and_identity(
    world: World, accept: str, stored: str
) -> None:
    """When two CSI drivers had registered at a first boot, the outage after it showed only the first."""
    for identity in (HUB_IDENTITY, OTHER):
        world.keep(PATH, config_map("old", 4), accept=stored, identity=identity)
    await world.write("PUT", PATH, 200, config_map("new", 9), accept)
    for identity in (HUB_IDENTITY, OTHER):
        assert [await world.value(accept=each, identity=identity) for each in (JSON, PROTOBUF)] == ["new"] * 2
    await world.write("DELETE", PATH, 200, GONE)
    assert [await world.get(PATH, identity=each) for each in (HUB_IDENTITY, OTHER)] == [None, None]


async def test_an_accepted_write_is_not_shown_to_another_identity(world: World) -> None:
    world.keep(PATH, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert await world.get(PATH, identity=OTHER) is None


async def test_an_accepted_write_is_not_returned_in_another_api_version(world: World) -> None:
    path = "/apis/autoscaling/{}/namespaces/a/horizontalpodautoscalers/x"
    former = {**config_map("old", 4), "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler"}
    world.keep(path.format("v1"), former)
    assert await world.value(target=path.format("v1")) == "old"
    await world.write("PUT", path.format("v2"), 200, {**former, "apiVersion": "autoscaling/v2"})
    assert await world.get(path.format("v1")) is None


async def test_a_client_without_gzip_gets_a_gzip_copy_decompressed(world: World) -> None:
    """Responses are stored with the content coding of their first reader."""
    packed = asked("GET", PATH)._replace(accept_encoding="gzip")
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    world.answers.cache_response(packed.key(""), headers, gzip.compress(raw(config_map("old", 4))))
    assert await world.value() == "old"


@pytest.mark.parametrize(
    ("kind", "x"),
    [("PUT", "new"), ("a creation, generated", "new"), ("DELETE, gone", None), ("a collection", None)],
)
async def test_lists_and_copies_have_the_accepted_write(world: World, kind: str, x: str | None) -> None:
    y = config_map("as it was", 3, "y")
    world.keep(LIST, list_of(5, config_map("old", 4), y))
    await world.write(*WRITES[kind][:4])
    expected = {"y": "as it was"} if x is None else {"x": x, "y": "as it was"}
    assert await world.values() == expected
    world.hold(MAPS._replace(encoding=Encoding.PROTOBUF), 6, config_map("old", 4), y)
    assert await world.values(EVERYWHERE) == expected


@pytest.mark.parametrize(("labels", "shown"), [({}, None), ({"app": "web"}, "new")])
async def test_an_accepted_write_that_a_selector_excludes_leaves_the_copy(
    world: World, labels: dict[str, str], shown: str | None
) -> None:
    store = world.hold(
        MAPS._replace(label_selector="app=web"), 5, config_map("old", 4, labels={"app": "web"})
    )
    await world.write("PUT", PATH, 200, config_map("new", 9, labels=labels))
    world.accepted.apply_to_copies()
    found = store.get(("a", "x"))
    assert (b'"new"' in found.raw if found is not None else None) == (True if shown else None)


async def test_a_copy_that_contains_the_write_is_not_changed(world: World) -> None:
    store = world.hold(MAPS, 5, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    store.apply("MODIFIED", raw(config_map("newest", 11)))
    assert await world.value() == "newest"


# -- a write without a response ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", STORED_BEFORE)
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_lost_response_makes_the_object_unknown(tmp_path: Path, stored: str, is_killed: bool) -> None:
    put = asked("PUT", PATH).info
    async with world_in(tmp_path) as world:
        STORED_BEFORE[stored](world)
        await world.accepted.begin(put)
        if not is_killed:
            world.accepted.lost(put)
            assert [await world.get(PATH), await world.get(PATH, PROTOBUF)] == [None, None]
            return
    async with world_in(tmp_path) as again:
        STORED_BEFORE[stored](again) if "copy" in stored else None
        assert [await again.get(PATH), await again.get(PATH, PROTOBUF)] == [None, None]


async def test_lists_and_watches_show_an_unknown_object_as_of_their_own_version(world: World) -> None:
    """kube-proxy lists all Services: one unanswered write by any client must not make that list unavailable."""
    store = world.hold(MAPS, 5, config_map("old", 4), config_map("as it was", 3, "y"))
    await world.accepted.begin(asked("PUT", PATH).info)
    world.accepted.lost(asked("PUT", PATH).info)
    listed = await world.get(LIST)
    assert isinstance(listed, dict)
    assert listed["metadata"]["resourceVersion"] == str(store.version)
    assert await world.values() == {"x": "old", "y": "as it was"}
    assert await world.get(PATH) is None, "whoever gets the object learns that nobody knows"


async def test_a_creation_without_a_response_leaves_the_copies_unchanged(world: World) -> None:
    world.hold(MAPS, 5, config_map("old", 4))
    world.accepted.lost(asked("POST", LIST).info)
    assert await world.value() == "old"
    assert await world.get(f"{LIST}/other") is None, "it may have been created"


@pytest.mark.parametrize("ends", ["read", "written", "heard"])
async def test_an_unknown_object_is_known_again_after_a_read_a_write_or_a_newer_event(
    world: World, ends: str
) -> None:
    store = world.hold(MAPS, 5, config_map("old", 4))
    world.accepted.lost(asked("PUT", PATH).info)
    assert await world.get(PATH) is None
    if ends == "read":
        world.accepted.learn(asked("GET", PATH).info)
    elif ends == "written":
        await world.write("PUT", PATH, 200, config_map("new", 9))
    else:
        (source,) = world.sources
        world.now += 2 * accepted_writes.LOST_WRITE_TIMEOUT + 2
        source.reflector.heard = world.now
    assert await world.value() == ("new" if ends == "written" else "old")
    assert store.get(("a", "x")) is not None


async def test_a_write_that_the_cloud_refused_changes_nothing(world: World) -> None:
    world.keep(PATH, config_map("old", 4))
    put = asked("PUT", PATH).info
    await world.accepted.begin(put)
    world.accepted.refused(put)
    assert await world.value() == "old"
    await world.accepted._rows.settled()
    assert not await world.copies.access.rows(accepted_writes.TABLE)


async def test_a_status_write_in_flight_makes_no_object_unknown(world: World) -> None:
    """kubelet repeats it, and the hub may accept that offline: if the hub is then killed, its copy has the previous
    status."""
    world.keep("/api/v1/nodes/n1", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}})
    patch = asked("PATCH", "/api/v1/nodes/n1/status").info
    await world.accepted.begin(patch)
    world.accepted.lost(patch)
    assert isinstance(await world.get("/api/v1/nodes/n1"), dict)


# -- the order of responses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [PATH, LIST, EVERYWHERE])
async def test_a_read_overtaken_by_a_write_is_not_current(world: World, target: str) -> None:
    read = asked("GET", target).info
    before = world.accepted.count
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert not world.accepted.is_current(read, before)
    assert world.accepted.is_current(read, world.accepted.count)
    assert world.accepted.is_current(asked("GET", f"{LIST}/y").info, before)


async def test_a_write_overtaken_by_another_is_not_the_newest(world: World) -> None:
    world.keep(PATH, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("newest", 11))
    world.keep(LIST, list_of(5, config_map("old", 4)))
    await world.write("PUT", PATH, 200, config_map("newest", 11))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert await world.values() == {"x": "newest"}


async def test_an_evicted_write_does_not_make_an_earlier_response_current(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_writes, "MAX_RECENT", 2)
    for name in ("x", "y", "z"):
        await world.write("PUT", f"{LIST}/{name}", 200, config_map("new", 9, name))
    assert not world.accepted.is_current(asked("GET", PATH).info, 0)


# -- bounds --------------------------------------------------------------------------------------------------------


async def test_a_write_evicted_by_the_bound_makes_its_object_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_writes, "MAX_FORMS", 2)
    names = ("x", "y", "z")
    world.keep(LIST, list_of(5, *(config_map("old", 4, name) for name in names)))
    world.hold(MAPS, 5, *(config_map("old", 4, name) for name in names))
    for name in names:
        await world.write("PUT", f"{LIST}/{name}", 200, config_map("new", 9, name))
    assert [await world.value(target=f"{LIST}/{name}") for name in names] == [None, "new", "new"]
    assert len(world.accepted.newest(ObjectRef("", "configmaps"))) == 2


async def test_many_unknown_objects_make_their_resource_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_writes, "MAX_RECENT", 2)
    world.hold(MAPS, 5, config_map("old", 4))
    for name in ("x", "y", "z"):
        world.accepted.lost(asked("PUT", f"{LIST}/{name}").info)
    assert await world.get(PATH) is None


async def test_a_write_that_all_copies_contain_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_writes, "PRUNE_THRESHOLD", 1)
    world.accepted._looked_at = 1
    store = world.hold(MAPS, 5, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    store.apply("MODIFIED", raw(config_map("new", 9)))
    (source,) = world.sources
    assert source.copy is not None
    while not source.copy.is_written:
        await source.copy.table.settled()  # type: ignore[attr-defined]  # a copy on disk
    await world.write("PUT", f"{LIST}/y", 200, config_map("new", 12, "y"))
    assert [ref.name for ref in world.accepted.newest(ObjectRef("", "configmaps"))] == ["y"]


async def test_a_failing_disk_delays_no_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.copies.access, "_failing", True)
    world.keep(PATH, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert await world.value() == "new"
