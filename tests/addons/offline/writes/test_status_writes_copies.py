"""Status writes to an object with several copies, and journaled statuses that no event confirms."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from addons.offline.writes import status_writes
from addons.offline.writes.journal_entries import StatusEntry
from addons.requests.cloud_identity import HUB_IDENTITY
from kube.errors import not_found
from kube.http.client import ApiResponse, Unreachable
from kube.json_type import Json
from kube.objects.status_update import updated
from kube.reflector.list_watch import ListWatch
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.offline.writes.test_status_writes import (
    NODE,
    NODES,
    QUESTIONS,
    World,
    conditions,
    decoded_answer,
    node_in,
    reports,
    stored_node,
    world_in,
)
from tests.addons.support.offline_parts import JSON, PROTOBUF, STRATEGIC, asked, body_of, read
from tests.addons.support.samples import fill, node


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as made:
        yield made


EVERY_NODE = ListWatch(NODES, encoding=Encoding.JSON)


@pytest.mark.parametrize("first", [QUESTIONS[Encoding.JSON], EVERY_NODE])
async def test_a_status_write_is_based_on_the_newest_copy(world: World, first: ListWatch) -> None:
    """Another component's copy, some days old, was once used. It already had the new status, so nothing was journaled,
    and kubelet got the old object."""
    for list_watch in sorted((QUESTIONS[Encoding.JSON], EVERY_NODE), key=lambda each: each != first):
        version, phase = (9, "old") if list_watch is EVERY_NODE else (5, "new")
        obj = {**node("n1", version), "status": {"phase": phase}}
        obj["metadata"]["uid"] = "u"
        fill(world.sources.get(HUB_IDENTITY, list_watch).store, [obj], version)
    answer = await world.patch({"status": {"phase": "new"}})
    entry = world.journal.statuses[NODE]
    assert (entry.before["status"]["phase"], entry.after["status"]["phase"]) == ("old", "new")
    assert decoded_answer(answer).version == 9


async def test_a_cached_response_newer_than_the_store_is_the_base_of_a_patch(world: World) -> None:
    (store,) = world.hold_node(Encoding.JSON, version=7)
    get = asked("GET", NODE)
    world.answers.cache_response(get.key(""), {"content-type": JSON}, body_of(node_in(Encoding.JSON, 9)))
    answer = await world.patch(reports(Ready="False"))
    assert (decoded_answer(answer).version, conditions(stored_node(store))) == (9, {"Ready": "False"})


@pytest.mark.parametrize(
    "stale", [{"uid": "of an earlier node of the name"}, {"name": "n1", "uid": "u", "labels": {}}]
)
async def test_an_older_copy_that_the_patch_does_not_fit_is_skipped(world: World, stale: Json) -> None:
    (store,) = world.hold_node(Encoding.PROTOBUF, version=9)
    old = world.sources.get(HUB_IDENTITY, QUESTIONS[Encoding.JSON]).store
    metadata = {"name": "n1", "resourceVersion": "5", **stale}
    fill(old, [{"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"phase": "old"}}], 5)
    patch = {"metadata": {"uid": "u"}, **reports(Ready="False")}
    answer = await world.patch(patch, accept=f"{PROTOBUF},{JSON}")
    assert conditions(decoded_answer(answer)) == conditions(stored_node(store)) == {"Ready": "False"}
    assert (conditions(stored_node(old)) == {}) is (stale["uid"] != "u")


async def test_copies_are_encoded_outside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy may have several megabytes."""
    threads: set[int] = set()

    def noted(*how: Any) -> bytes:
        threads.add(threading.get_ident())
        return updated(*how)

    monkeypatch.setattr(status_writes, "updated", noted)
    stores = world.hold_node(Encoding.JSON, Encoding.PROTOBUF)
    await world.patch(reports(Ready="False"))
    assert [conditions(stored_node(store)) for store in stores] == [{"Ready": "False"}] * 2
    assert threads
    assert threading.get_ident() not in threads


# -- a dropped status without an event: the copy is reset to the cloud's state -------------------------------------


async def reported(world: World, *encodings: Encoding) -> tuple[StatusEntry, list[Store]]:
    stores = world.hold_node(*encodings)
    await world.patch(reports(Ready="False"), accept=f"{JSON},{PROTOBUF}")
    return world.journal.statuses[NODE], stores


async def test_a_reverted_status_restores_the_clouds_object(world: World) -> None:
    entry, stores = await reported(world, Encoding.JSON, Encoding.PROTOBUF)
    world.cloud.says = [
        ApiResponse(encoding, body_of(node_in(encoding))) for encoding in (Encoding.JSON, Encoding.PROTOBUF)
    ]
    await world.statuses.reload_copies(entry)
    assert [conditions(stored_node(store)) for store in stores] == [{"Ready": "True"}] * 2
    assert [(each.method, each.path, each.accept) for each in world.cloud.heard] == [
        ("GET", NODE, JSON),
        ("GET", NODE, PROTOBUF),
    ]


@pytest.mark.parametrize(
    "said",
    [
        not_found("nodes", "n1"),
        ApiResponse(JSON, b"{"),
        ApiResponse("text/html", b"<html>"),
        ApiResponse(JSON, body_of(node_in(Encoding.JSON, version=9))),
    ],
)
async def test_the_watchs_object_is_restored_if_the_cloud_does_not_answer(
    world: World, said: ApiResponse | Exception
) -> None:
    entry, (store,) = await reported(world, Encoding.JSON)
    world.cloud.says = [said]
    await world.statuses.reload_copies(entry)
    assert conditions(stored_node(store)) == {"Ready": "False"}
    fill(store, [{**node("n1", 9), "status": {}}], 9)
    assert conditions(stored_node(store)) == {}


async def test_the_status_stays_if_the_cloud_is_gone_again(world: World) -> None:
    entry, (store,) = await reported(world, Encoding.JSON)
    world.cloud.says = [Unreachable("no route")]
    with pytest.raises(Unreachable):
        await world.statuses.reload_copies(entry)
    assert conditions(stored_node(store)) == {"Ready": "False"}


async def test_a_newer_status_is_not_reverted(world: World) -> None:
    entry, (store,) = await reported(world, Encoding.JSON)
    await world.patch(reports(Ready="Unknown"))
    world.cloud.says = [ApiResponse(JSON, body_of(node_in(Encoding.JSON)))]
    await world.statuses.reload_copies(entry)
    assert conditions(stored_node(store)) == {"Ready": "Unknown"}


@pytest.mark.parametrize("held", [Encoding.JSON, Encoding.PROTOBUF])
@pytest.mark.parametrize("accept", [JSON, PROTOBUF])
@pytest.mark.parametrize("is_cached", [False, True])
async def test_a_client_gets_its_encoding_whichever_copy_is_stored(
    world: World, held: Encoding, accept: str, is_cached: bool
) -> None:
    """A JSON client's status patch was once refused with 406 on a node whose kubelet reads protobuf."""
    if is_cached:
        get = asked("GET", NODE, accept=held)
        world.answers.cache_response(get.key(""), {"content-type": held}, body_of(node_in(held)))
    else:
        world.hold_node(held)
    answer = await world.patch(reports(Ready="False"), STRATEGIC, accept)
    assert answer.headers["Content-Type"] == accept
    assert isinstance(answer.body, bytes)
    assert conditions(read(answer.body, accept)) == {"Ready": "False"}


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_status_is_merged_into_each_cached_response_with_the_object(
    world: World, is_held: bool
) -> None:
    keys = [
        (asked("GET", NODE, accept=accept).key(user), accept)
        for accept in (JSON, PROTOBUF)
        for user in ("", "pod")
    ]
    for key, accept in keys:
        world.answers.cache_response(key, {"content-type": accept}, body_of(node_in(Encoding(accept))))
    if is_held:
        world.hold_node(Encoding.PROTOBUF)
    await world.patch(reports(Ready="False"), STRATEGIC, JSON)
    for key, _ in keys:
        answer = await world.answers.get(key)
        assert answer is not None
        assert conditions(answer.single().decode()) == {"Ready": "False"}
