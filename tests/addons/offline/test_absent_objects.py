"""Objects that a copy lacks: 404 only if the copy followed the cloud until it went away, otherwise 503."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.requests.cloud_identity import HUB_IDENTITY
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_world import OfflineWorld, open_world
from tests.support.objects import obj

MAPS = ListWatch(ResourceType("", "v1", "configmaps"), encoding=Encoding.JSON)
ONE = MAPS._replace(namespace="a", field_selector="metadata.name=new")
TARGET = "/api/v1/namespaces/a/configmaps"
BY_NAME = f"{TARGET}?fieldSelector=metadata.name%3Dnew"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[OfflineWorld]:
    async with copies_in(tmp_path) as copies, open_world(OfflineWorld(copies)) as made:
        made.hold(MAPS, 9, obj("ConfigMap", "x", "a", 4))
        yield made


def end_source(node: OfflineWorld, list_watch: ListWatch = MAPS) -> None:
    """End a source, as after its last client."""
    node.sources._drop(node.sources.get(HUB_IDENTITY, list_watch))


def stop(node: OfflineWorld) -> None:
    """End the hub, with all changes on disk."""
    node.sources.close()
    node.copies.access.close()


async def answers(node: OfflineWorld) -> list[int | None]:
    """Return what a GET and a list by name give of an absent object: 404, items of a list, or None for a 503."""
    got, listed = await node.get(f"{TARGET}/new"), await node.get(BY_NAME)
    assert not isinstance(got, dict)
    return [got, len(listed["items"]) if isinstance(listed, dict) else listed]


async def test_an_object_created_after_the_source_ended_is_not_absent(
    node: OfflineWorld, tmp_path: Path
) -> None:
    """The client that read the list had gone; after `kill -9` in an outage each later object was answered 404."""
    assert await answers(node) == [404, 0]
    end_source(node)
    await node.answers.written()
    assert await answers(node) == [None, None]
    assert isinstance(await node.get(f"{TARGET}/x"), dict), "what the copy has is given"
    assert isinstance(await node.get(TARGET), dict), "and the list as it was"
    stop(node)
    async with copies_in(tmp_path) as copies, open_world(OfflineWorld(copies)) as after:
        assert await answers(after) == [None, None]
        assert isinstance(await after.get(TARGET), dict)


async def test_a_followed_copy_answers_404_after_a_restart(node: OfflineWorld, tmp_path: Path) -> None:
    stop(node)
    async with copies_in(tmp_path) as copies, open_world(OfflineWorld(copies)) as after:
        assert await answers(after) == [404, 0]
        after.health.succeeded()
        assert await answers(after) == [None, None], "the cloud was there, and the source did not follow it"


@pytest.mark.parametrize("code", [404, None])
async def test_a_copy_that_no_source_followed_while_its_hub_was_online_is_marked(
    node: OfflineWorld, tmp_path: Path, code: int | None
) -> None:
    stop(node)
    async with copies_in(tmp_path) as copies:
        if code is None:
            copies.went_online()
        await asyncio.gather(*copies._marking)
    async with copies_in(tmp_path) as copies, open_world(OfflineWorld(copies)) as after:
        assert await after.get(f"{TARGET}/new") == code


async def test_a_deleted_object_is_not_given_from_an_older_copy(node: OfflineWorld) -> None:
    """The newer copy is not followed any more, so the object may have been created again."""
    node.hold(ONE, 5, obj("ConfigMap", "new", "a", 3))
    for list_watch in (MAPS, ONE):
        end_source(node, list_watch)
    assert await node.get(f"{TARGET}/new") is None
