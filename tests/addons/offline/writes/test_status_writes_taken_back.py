"""A journaled status of which no event comes: the node shows what the cloud has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.writes.journal_entries import StatusEntry
from kube.errors import not_found
from kube.http.client import ApiResponse, Unreachable
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.offline.writes.test_status_writes import (
    NODE,
    World,
    conditions,
    node_in,
    reports,
    shown,
    world_in,
)
from tests.addons.support.offline_parts import JSON, PROTOBUF, body_of
from tests.addons.support.samples import fill, node


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as made:
        yield made


async def reported(world: World, *encodings: Encoding) -> tuple[StatusEntry, list[Store]]:
    stores = world.hold(*encodings)
    await world.patch(reports(Ready="False"), accept=f"{JSON},{PROTOBUF}")
    return world.journal.statuses[NODE], stores


async def test_what_the_node_gave_an_object_is_shown_no_longer(world: World) -> None:
    entry, stores = await reported(world, Encoding.JSON, Encoding.PROTOBUF)
    world.cloud.says = [
        ApiResponse(encoding, body_of(node_in(encoding))) for encoding in (Encoding.JSON, Encoding.PROTOBUF)
    ]
    await world.writes.take_back(entry)
    assert [conditions(shown(store)) for store in stores] == [{"Ready": "True"}] * 2
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
async def test_where_the_cloud_cannot_say_the_watch_will(world: World, said: ApiResponse | Exception) -> None:
    entry, (store,) = await reported(world, Encoding.JSON)
    world.cloud.says = [said]
    await world.writes.take_back(entry)
    assert conditions(shown(store)) == {"Ready": "False"}
    fill(store, [{**node("n1", 9), "status": {}}], 9)
    assert conditions(shown(store)) == {}


async def test_where_the_cloud_is_gone_again_the_status_stays(world: World) -> None:
    entry, (store,) = await reported(world, Encoding.JSON)
    world.cloud.says = [Unreachable("no route")]
    with pytest.raises(Unreachable):
        await world.writes.take_back(entry)
    assert conditions(shown(store)) == {"Ready": "False"}


async def test_a_newer_status_is_not_taken_back(world: World) -> None:
    entry, (store,) = await reported(world, Encoding.JSON)
    await world.patch(reports(Ready="Unknown"))
    world.cloud.says = [ApiResponse(JSON, body_of(node_in(Encoding.JSON)))]
    await world.writes.take_back(entry)
    assert conditions(shown(store)) == {"Ready": "Unknown"}
