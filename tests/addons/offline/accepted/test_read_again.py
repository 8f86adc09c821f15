"""Writes whose answer does not have the object: the hub reads it before the client has its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from multidict import CIMultiDict

from addons.views.reviews import Reviews
from kube.errors import not_found
from kube.http.client import ApiResponse, RawResponse, Unreachable
from kube.json_type import Json
from tests.addons.support.offline_parts import JSON, FixedClients, asked
from tests.addons.support.samples import HUB, raw
from tests.addons.support.stored_maps import LIST, MAPS, PATH, TABLE, World, config_map, list_of, world_in
from tests.kube.support.answering import Asked

METADATA = {"apiVersion": "meta.k8s.io/v1", "metadata": config_map("new", 9)["metadata"]}
PARTIAL: Json = {"kind": "PartialObjectMetadata", **METADATA}
TABLE_OF_X: Json = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": [{"object": PARTIAL}]}
SCALE: Json = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "x"}}
ANSWERS: dict[str, tuple[str, str, Json | bytes, str]] = {
    "a Table": ("PUT", PATH, TABLE_OF_X, TABLE),
    "a Table of a creation": ("POST", LIST, TABLE_OF_X, TABLE),
    "the metadata": ("PATCH", PATH, PARTIAL, JSON),
    "YAML": ("PUT", PATH, b"kind: ConfigMap", "application/yaml"),
    "a scale": ("PUT", f"{PATH}/scale", SCALE, JSON),
    "a binding": ("POST", f"{PATH}/binding", {"kind": "Status", "apiVersion": "v1"}, JSON),
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as made:
        made.hold(MAPS, 5, config_map("old", 4))
        made.keep(PATH, config_map("old", 4))
        made.keep(LIST, list_of(6, config_map("old", 4)))
        yield made


async def write(world: World, kind: str) -> None:
    method, target, answer, accept = ANSWERS[kind]
    relay = world.relay(FixedClients(world.cloud, world.cloud), Reviews(lambda _: world.cloud, 3600))
    request = asked(method, target, accept=accept)
    await world.accepted.begin(request.info)
    body = answer if isinstance(answer, bytes) else raw(answer)
    said = RawResponse(200, CIMultiDict({"Content-Type": accept.partition(";")[0]}), body)
    await relay.written(HUB, request, said, was_sent=True)


@pytest.mark.parametrize("kind", ANSWERS)
async def test_the_object_of_an_accepted_write_is_read_for_lists_and_gets(world: World, kind: str) -> None:
    """Cut before the watch's event, a list showed the object as before the write, and a GET was 503."""
    world.cloud.usual = config_map("new", 9)
    await write(world, kind)
    assert world.cloud.lines == [("GET", PATH)]
    assert (await world.value(), await world.values()) == ("new", {"x": "new"})


@pytest.mark.parametrize("failure", [Unreachable("gone"), not_found("configmaps", "x")])
async def test_an_object_that_cannot_be_read_stays_unknown(world: World, failure: Exception) -> None:
    world.cloud.usual = failure
    await write(world, "a scale")
    assert await world.value() is None


async def test_an_object_written_meanwhile_is_not_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the read may be older than the other write."""

    async def overtaken(_: Asked) -> ApiResponse:
        world.accepted.lost(asked("PUT", PATH).info)
        return ApiResponse(JSON, raw(config_map("new", 9)))

    monkeypatch.setattr(world.cloud, "answer", overtaken)
    await write(world, "a scale")
    assert await world.value() is None
