"""The hub's reports on its node to the cloud after an outage."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from typing import cast

import orjson
import pytest

from addons.link.health import Cloud
from addons.offline.copies import DiskCopies
from addons.offline.writes.post_outage_sync import ATTEMPTS, PostOutageSync, return_patch
from kube.concurrency.notifier import Notifier
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.addons.offline.writes.test_status_writes import NODE, QUESTIONS, node_tree
from tests.addons.support.offline_world import OfflineWorld, open_world


def in_cloud(uid: str = "u", **states: str) -> Json:
    conditions = [{"type": kind, "status": state, "reason": "any"} for kind, state in states.items()]
    return {
        "metadata": {"name": "n1", "uid": uid, "resourceVersion": "9"},
        "status": {"conditions": conditions},
    }


class World(OfflineWorld):
    """A node whose kubelet has reported Ready, and a cloud that fails and recovers."""

    def __init__(self, copies: DiskCopies) -> None:
        super().__init__(copies)
        self.hold(QUESTIONS[Encoding.PROTOBUF], 7, node_tree())
        self.is_alive, self.changed = True, Notifier()
        self.part = PostOutageSync("n1", self.cloud, self.reads, cast(Cloud, self), lambda: self.is_alive)

    async def switch(self, *, is_up: bool) -> None:
        """Switch the cloud on or off, and wait for all effects."""
        self.is_up = is_up
        self.changed.notify()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def world(copies: DiskCopies) -> AsyncIterator[World]:
    async with open_world(World(copies)) as made:
        task = asyncio.create_task(made.part.run())
        await asyncio.sleep(0)
        yield made
        assert not task.done()
        task.cancel()


async def test_kubelets_report_is_sent_after_each_outage(world: World) -> None:
    for outage in (1, 2):
        world.cloud.says = [in_cloud(Ready="Unknown", Other="Unknown"), {}]
        await world.switch(is_up=True)
        assert world.cloud.lines == [("GET", NODE), ("PATCH", f"{NODE}/status")] * outage
        await world.switch(is_up=False)
    patch = orjson.loads(world.cloud.heard[-1].body)
    (ready,) = patch["status"]["conditions"]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    assert patch["metadata"] == {"resourceVersion": "9"}


async def test_no_report_is_sent_for_a_silent_kubelet_or_an_equal_status(world: World) -> None:
    world.is_alive = False
    await world.switch(is_up=True)
    assert world.cloud.lines == []
    await world.switch(is_up=False)
    world.is_alive, world.cloud.usual = True, in_cloud(Ready="False")
    await world.switch(is_up=True)
    assert world.cloud.lines == [("GET", NODE)]


async def test_a_conflict_is_tried_again_a_few_times(world: World) -> None:
    conflict = StatusError(409, "Conflict", "written meanwhile")
    world.cloud.says = [in_cloud(Ready="Unknown"), conflict] * (ATTEMPTS + 1)
    await world.switch(is_up=True)
    assert len(world.cloud.lines) == 2 * ATTEMPTS


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("gone"),
        StatusError(403, "Forbidden", "no"),
        {"metadata": 1, "status": {"conditions": [{}]}},
    ],
)
async def test_a_failed_report_after_an_outage_is_left_to_kubelet(
    world: World, failure: Exception | Json
) -> None:
    world.cloud.says = [failure]
    await world.switch(is_up=True)
    assert world.cloud.lines == [("GET", NODE)]
    await world.switch(is_up=False)
    world.cloud.says = [in_cloud(Ready="Unknown"), {}]
    await world.switch(is_up=True)
    assert world.cloud.lines[1:] == [("GET", NODE), ("PATCH", f"{NODE}/status")]


def test_only_unknown_conditions_of_this_node_are_changed() -> None:
    stamp = "2026-01-02T03:04:05Z"
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    reported = in_cloud(Ready="True", MemoryPressure="False", DiskPressure="Unknown")
    node = in_cloud(Ready="Unknown", MemoryPressure="True", DiskPressure="Unknown")
    assert return_patch(node, reported, now)["status"]["conditions"] == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "any",
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
    ]
    assert return_patch(in_cloud("other", Ready="Unknown"), reported, now) == {}
    assert return_patch(node, {}, now) == {}
