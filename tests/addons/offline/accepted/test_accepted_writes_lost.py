"""Writes whose answer was lost, answers that overtake each other, and what has no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.offline.accepted import accepted_writes
from kube.requests.object_ref import ObjectRef
from tests.addons.support.offline_parts import PROTOBUF, asked
from tests.addons.support.samples import raw
from tests.addons.support.stored_maps import (
    EVERYWHERE,
    LIST,
    MAPS,
    PATH,
    STORED_BEFORE,
    World,
    config_map,
    list_of,
    world_in,
)

# -- a write without an answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", STORED_BEFORE)
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_lost_answer_leaves_the_object_unknown(tmp_path: Path, stored: str, is_killed: bool) -> None:
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


async def test_lists_and_watches_are_of_a_version_and_show_the_object_as_it_was_at_that(world: World) -> None:
    """kube-proxy lists all Services: one write without an answer, of any client, must not take them all from it."""
    store = world.hold(MAPS, 5, config_map("old", 4), config_map("as it was", 3, "y"))
    await world.accepted.begin(asked("PUT", PATH).info)
    world.accepted.lost(asked("PUT", PATH).info)
    listed = await world.get(LIST)
    assert isinstance(listed, dict)
    assert listed["metadata"]["resourceVersion"] == str(store.version)
    assert await world.values() == {"x": "old", "y": "as it was"}
    assert await world.get(PATH) is None, "whoever gets the object learns that nobody knows"


async def test_a_creation_without_an_answer_leaves_the_copies(world: World) -> None:
    world.hold(MAPS, 5, config_map("old", 4))
    world.accepted.lost(asked("POST", LIST).info)
    assert await world.value() == "old"
    assert await world.get(f"{LIST}/other") is None, "it may have been created"


@pytest.mark.parametrize("ends", ["read", "written", "heard"])
async def test_an_object_is_known_again(world: World, ends: str) -> None:
    store = world.hold(MAPS, 5, config_map("old", 4))
    world.accepted.lost(asked("PUT", PATH).info)
    assert await world.get(PATH) is None
    if ends == "read":
        world.accepted.learn(asked("GET", PATH).info)
    elif ends == "written":
        await world.write("PUT", PATH, 200, config_map("new", 9))
    else:
        (source,) = world.sources
        world.now += 2 * accepted_writes.SETTLED + 2
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
    """kubelet sends it again, and the hub takes it meanwhile: a hub that is killed then has the former one."""
    world.keep("/api/v1/nodes/n1", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}})
    patch = asked("PATCH", "/api/v1/nodes/n1/status").info
    await world.accepted.begin(patch)
    world.accepted.lost(patch)
    assert isinstance(await world.get("/api/v1/nodes/n1"), dict)


# -- the order of answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [PATH, LIST, EVERYWHERE])
async def test_an_answer_to_a_read_that_a_write_overtook_is_not_current(world: World, target: str) -> None:
    read = asked("GET", target).info
    before = world.accepted.count
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert not world.accepted.is_current(read, before)
    assert world.accepted.is_current(read, world.accepted.count)
    assert world.accepted.is_current(asked("GET", f"{LIST}/y").info, before)


async def test_an_answer_to_a_write_that_another_overtook_is_not_the_newest(world: World) -> None:
    world.keep(PATH, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("newest", 11))
    world.keep(LIST, list_of(5, config_map("old", 4)))
    await world.write("PUT", PATH, 200, config_map("newest", 11))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert await world.values() == {"x": "newest"}


async def test_writes_that_are_forgotten_make_no_former_answer_current(
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


async def test_a_write_that_all_copies_have_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_writes, "LOOKED_THROUGH", 1)
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


async def test_a_disk_that_fails_holds_up_no_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.copies.access, "_failing", True)
    world.keep(PATH, config_map("old", 4))
    await world.write("PUT", PATH, 200, config_map("new", 9))
    assert await world.value() == "new"
