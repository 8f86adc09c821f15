"""A wall clock that is set while a hub runs, or between two runs: nothing is lost, and the node stays alive."""

from __future__ import annotations

import asyncio
import os
import re
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kube.wire.encoding import Encoding
from tests.cloud.fixtures import OpenLink
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import headless, service_names
from tests.hub.support.outage import Outage
from tests.hub.support.process import ROOT, SLACK, Hub
from tests.hub.support.site import hub_before
from tests.hub.support.streams import watching
from tests.hub.test_lease import DURATION, LEASES, keep_renewing, lease, renewed, until_renewed
from tests.support.background import beside

HOUR = 3600
NODES = "/api/v1/nodes"
STRATEGIC = "application/strategic-merge-patch+json"
KEEP = 2 * HOUR
"""The retention in days, which the impatient hub counts as seconds: longer than any single change of the clock."""
GARBAGE = "edgehub_garbage_total"


@dataclass
class Scene:
    """A hub whose wall clock can be set, behind a link."""

    hub: Hub
    link: Link
    clock: Path
    cloud: RealCloud
    namespace: str
    away: list[tuple[float, float]] = field(default_factory=list)
    """The times at which the cloud was cut off."""
    renewals: list[tuple[float, str]] = field(default_factory=list)
    """When the lease in the cloud changed, with its new renewTime."""

    @property
    def outage(self) -> Outage:
        return Outage(self.hub, self.link)

    @property
    def services(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services"

    def set_clock(self, seconds: float) -> None:
        with self.clock.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    @asynccontextmanager
    async def offline(self) -> AsyncIterator[None]:
        began = time.monotonic()
        async with self.outage.away():
            yield
        await until_renewed(self.cloud, self.hub.node, self.renewals[-1][1])
        self.away.append((began, time.monotonic()))

    async def make(self, name: str) -> None:
        await asyncio.to_thread(self.cloud.admin.post, self.services, headless(name))

    async def write(self, reason: str) -> None:
        """Send a kubelet's writes: the node's status, and an event of that name."""
        patch = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": reason}]}}
        path = f"{NODES}/{self.hub.node}/status"
        answer = await self.outage.ask(path, method="PATCH", body=patch, content_type=STRATEGIC)
        assert answer.status == 200, answer.body
        about = {"kind": "Pod", "namespace": self.namespace, "name": "p"}
        metadata = {"name": reason.lower(), "namespace": self.namespace}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about}
        answer = await self.outage.ask(self.events, method="POST", body=event)
        assert answer.status == 201, answer.body

    @property
    def events(self) -> str:
        return self.services.replace("services", "events")

    async def has_come(self, *reasons: str) -> None:
        """Return True if the cloud has these events and the last status."""
        await asyncio.to_thread(self.hub.wait_for_metric, "edgehub_journal_entries", 0, 20)
        node: Any = await asyncio.to_thread(self.cloud.admin.get, f"{NODES}/{self.hub.node}")
        assert [each["reason"] for each in node["status"]["conditions"]] == [reasons[-1]]
        for reason in reasons:
            await asyncio.to_thread(self.cloud.admin.get, f"{self.events}/{reason.lower()}")

    async def look_at_lease(self) -> None:
        """Record each change of the lease in the cloud."""
        while True:
            when = await renewed(self.cloud, self.hub.node)
            if when and (not self.renewals or when != self.renewals[-1][1]):
                self.renewals.append((time.monotonic(), when))
            await asyncio.sleep(0.1)

    def check_lease(self) -> None:
        """Check the lease like the node lifecycle controller: a node is alive while its latest renewTime advances, by
        the controller's clock. kubelet's own writes have kubelet's clock."""
        counted = [
            each
            for number, each in enumerate(self.renewals)
            if all(each[1] > earlier for _, earlier in self.renewals[:number])
        ]
        for (then, _), (now, _) in pairwise(counted):
            if not any(began < now and then < ended for began, ended in self.away):
                assert now - then < DURATION + SLACK

    def check_log(self) -> None:
        said = [line for line in self.hub.process.lines if re.search(" (ERROR|CRITICAL) |Traceback", line)]
        assert not said


@pytest.fixture
def scene(
    real_cloud: RealCloud, link: OpenLink, node: str, tmp_path: Path, namespace: str
) -> Iterator[Scene]:
    """Return the scene, with the node in the cloud; the hub is not started yet."""
    real_cloud.admin.post(NODES, {"metadata": {"name": node}})
    opened = link(real_cloud.host, real_cloud.port)
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("d", 0))
    hub = hub_before(
        *(real_cloud, tmp_path, node, "--keep-days", str(KEEP)),
        link=opened,
        program=("tests.hub.support.impatient",),
        env={
            "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent / "wrong_clock"), str(ROOT))),
            "WRONG_CLOCK": str(clock),
        },
    )
    yield Scene(hub, opened, clock, real_cloud, namespace)
    hub.stop()


@asynccontextmanager
async def kubelet(scene: Scene) -> AsyncIterator[None]:
    """Renew the lease through the hub, and read it in the cloud."""
    assert (await scene.outage.ask(LEASES, method="POST", body=lease(scene.hub.node, 0))).status == 201
    async with beside(keep_renewing(scene.outage, scene.hub.node), scene.look_at_lease()):
        await until_renewed(scene.cloud, scene.hub.node, "2026-01-03")
        yield


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_set_while_the_hub_runs_loses_nothing(scene: Scene, hours: int) -> None:
    hub = scene.hub
    await asyncio.to_thread(hub.start)
    async with (
        kubelet(scene),
        watching(hub.url, scene.services, component="kube-proxy", encoding=Encoding.PROTOBUF) as filtered,
        watching(hub.url, scene.services, component="kubelet") as plain,
    ):
        assert (await scene.outage.ask(f"{NODES}/{hub.node}")).status == 200
        version = await scene.outage.ask("/version")
        assert version.status == 200
        async with scene.offline():
            await scene.write("Before")
            scene.set_clock(hours * HOUR)
            await scene.write("After")
            await scene.make("meanwhile")
            assert (await scene.outage.ask("/version")).body == version.body
        for events in (filtered, plain):
            await events.first("ADDED", "meanwhile", 20)
        await scene.has_come("Before", "After")
        # Repeat everything with the new clock.
        async with scene.offline():
            await scene.write("Again")
            await scene.make("again")
        for events in (filtered, plain):
            await events.first("ADDED", "again", 20)
            assert not events.ended
        await scene.has_come("Before", "After", "Again")
        await until_renewed(scene.cloud, hub.node, scene.renewals[-1][1])
    scene.check_lease()
    scene.check_log()
    assert hub.metric(GARBAGE) == 0
    # Garbage collection did run: older copies are deleted.
    scene.set_clock(hours * HOUR + KEEP + 1)
    await asyncio.to_thread(hub.process.wait_for_line, "copies deleted from disk: unused", 20)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_set_between_two_runs_loses_nothing(scene: Scene, hours: int) -> None:
    hub = scene.hub
    await asyncio.to_thread(hub.start)
    assert (await scene.outage.ask(f"{NODES}/{hub.node}")).status == 200
    before = await service_names(hub)
    for name in ("kubernetes", hub.node):
        await asyncio.to_thread(hub.wait_until_stored, f'"name":"{name}"', 1)
    await asyncio.to_thread(scene.outage.leave)
    await scene.write("Before")
    await asyncio.to_thread(hub.kill)
    scene.set_clock(hours * HOUR)
    await asyncio.to_thread(hub.start)
    assert await service_names(hub) == before
    await scene.write("After")
    await asyncio.to_thread(scene.outage.come_back)
    await scene.has_come("Before", "After")
    scene.check_log()
    assert hub.metric(GARBAGE) == 0
