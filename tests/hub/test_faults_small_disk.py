"""A disk that is really full, or really read-only: with a running hub, and with one that starts without a cloud."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.cloud.fixtures import OpenLink
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.small_disk import SmallDisk
from tests.hub.support.objects import headless, service_names
from tests.hub.support.outage import Outage
from tests.hub.support.process import Hub
from tests.hub.support.site import hub_before
from tests.hub.support.streams import Events, watching

MOST = 50
"""The number of Services after which the disk must be full: SQLite's log has little unused space."""
WAIT_UNTIL_STORED = """
import sqlite3, sys, time
from pathlib import Path
disk = sqlite3.connect(f"{Path(sys.argv[1]).as_uri()}?mode=ro", uri=True)
holding = "SELECT count(*) FROM Cache WHERE instr(value, ?)"
ends = time.monotonic() + 20
for text in sys.argv[2:]:
    while not disk.execute(holding, (text.encode(),)).fetchone()[0]:
        assert time.monotonic() < ends, text
        time.sleep(0.05)
"""
"""A program that ends when texts are on a hub's disk, which only processes in its namespace can see."""

ERRORS = "edgehub_cache_write_errors_total"

service = partial(headless, filler=100_000)


async def wait_until_stored(hub: Hub, disk: SmallDisk, *texts: str) -> None:
    """Return when the texts are on disk."""
    database = hub.state / "cache" / "cache.db"
    command = (*disk.inside, sys.executable, "-c", WAIT_UNTIL_STORED, str(database), *texts)
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)


async def fill_up(hub: Hub, disk: SmallDisk, cloud: RealCloud, path: str, events: Events) -> list[str]:
    """Fill the disk, and create Services until the hub has noticed; return the names of those that it could not
    store."""
    await asyncio.to_thread(disk.fill)
    names: list[str] = []
    while not hub.metric(ERRORS):
        assert len(names) < MOST
        names.append(f"full{len(names)}")
        await asyncio.to_thread(cloud.admin.post, path, service(names[-1]))
        await events.first("ADDED", names[-1])
    return names


@pytest.fixture
def cramped(
    real_cloud: RealCloud, link: OpenLink, node: str, small_disk: SmallDisk
) -> Iterator[tuple[Hub, Link]]:
    """Return a hub that is not started yet, with its state on the small disk, behind a link."""
    opened = link(real_cloud.host, real_cloud.port)
    folder, inside = small_disk.folder, small_disk.inside
    hub = hub_before(real_cloud, folder, node, "--wait", "4", link=opened, inside=inside)
    yield hub, opened
    hub.stop()


async def test_a_full_disk_is_reported_and_used_again_once_it_has_space(
    cramped: tuple[Hub, Link], small_disk: SmallDisk, real_cloud: RealCloud, namespace: str
) -> None:
    hub, link = cramped
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(hub.start)
    await service_names(hub)
    assert hub.metric(ERRORS) == 0
    async with watching(hub.url, path, component="kube-proxy") as events:
        names = await fill_up(hub, small_disk, real_cloud, path, events)
        await hub.logged("the disk cannot be used, the hub continues without it: .*full")
        # Clients are not affected.
        await asyncio.to_thread(real_cloud.admin.post, path, service("last"))
        await events.first("ADDED", "last")
        everything = await service_names(hub)
        assert {*names, "last"} <= everything
        small_disk.free_space()
        await hub.logged("the disk can be used again")
        await wait_until_stored(hub, small_disk, *(f'"name":"{name}"' for name in (*names, "last")))
    await asyncio.to_thread(hub.kill)
    link.refuse()
    await asyncio.to_thread(hub.start)
    assert await service_names(hub) == everything


async def test_a_copy_from_before_a_full_disk_is_complete(
    cramped: tuple[Hub, Link], small_disk: SmallDisk, real_cloud: RealCloud, namespace: str
) -> None:
    hub, link = cramped
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, service("before"))
    await asyncio.to_thread(hub.start)
    before = await service_names(hub)
    await wait_until_stored(hub, small_disk, namespace)
    async with watching(hub.url, path, component="kube-proxy") as events:
        names = await fill_up(hub, small_disk, real_cloud, path, events)
    await asyncio.to_thread(hub.kill)
    link.refuse()
    await asyncio.to_thread(hub.start)
    # The first Services may have fitted into SQLite's log; the last did not.
    shown = await service_names(hub)
    written = names[: len(shown - before)]
    assert "before" in before
    assert len(written) < len(names)
    assert shown == before | set(written)


FAULTS: dict[str, tuple[Callable[[SmallDisk], None], Callable[[SmallDisk], None]]] = {
    "full": (SmallDisk.fill, SmallDisk.free_space),
    "read-only": (SmallDisk.make_read_only, SmallDisk.make_writable),
}
"""By fault: a function that fills or breaks the disk, and one that repairs it."""


@pytest.mark.parametrize("crash", [False, True], ids=["sigterm", "kill -9"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_hub_that_starts_offline_on_a_broken_disk_answers_from_the_copy(
    cramped: tuple[Hub, Link],
    small_disk: SmallDisk,
    real_cloud: RealCloud,
    namespace: str,
    fault: str,
    crash: bool,
) -> None:
    # Bytes of an event: nearly the journal's maximum.
    filler = 60_000

    async def write_more(outage: Outage) -> None:
        """Write events until the disk is full: after a crash SQLite's log takes some megabytes."""
        number = 0
        while not outage.hub.metric(ERRORS):
            assert number < 10 * MOST
            about = {"kind": "Pod", "namespace": namespace, "name": "p"}
            metadata = {"name": f"e{number}", "namespace": namespace, "annotations": {"filler": "x" * filler}}
            event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about}
            taken = await outage.ask(f"/api/v1/namespaces/{namespace}/events", method="POST", body=event)
            assert taken.status == 201
            number += 1

    hub, link = cramped
    outage = Outage(hub, link)
    breaks, mends = FAULTS[fault]
    nodes = "/api/v1/nodes"
    path, node = f"/api/v1/namespaces/{namespace}/services", f"{nodes}/{hub.node}"
    await asyncio.to_thread(real_cloud.admin.post, path, service("before"))
    await asyncio.to_thread(real_cloud.admin.post, nodes, {"metadata": {"name": hub.node}})
    await asyncio.to_thread(hub.start)
    before = await service_names(hub)
    seen = {each: (await outage.ask(each)).body for each in (node, "/api", "/version")}
    await wait_until_stored(hub, small_disk, namespace, f'"name":"{hub.node}"', "gitVersion", "APIVersions")
    await asyncio.to_thread(hub.kill if crash else hub.stop)
    await asyncio.to_thread(breaks, small_disk)
    link.refuse()
    await asyncio.to_thread(hub.start)
    assert await service_names(hub) == before
    for each, body in seen.items():
        answer = await outage.ask(each)
        assert (answer.status, answer.body) == (200, body)
    strategic = "application/strategic-merge-patch+json"
    async with watching(hub.url, path, component="kube-proxy", resourceVersion="0") as events:
        await events.first("ADDED", "before")
        # A write is accepted, and reported when it is not stored.
        patch = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Offline"}]}}
        taken = await outage.ask(f"{node}/status", method="PATCH", body=patch, content_type=strategic)
        assert taken.status == 200
        await write_more(outage)
        await hub.logged("the disk cannot be used, the hub continues without")
        assert await service_names(hub) == before
        await asyncio.to_thread(mends, small_disk)
        await asyncio.to_thread(outage.come_back)
        await asyncio.to_thread(real_cloud.admin.post, path, service("later"))
        await events.first("ADDED", "later", 20)
    await asyncio.to_thread(hub.wait_for_metric, "edgehub_journal_entries", 0, 20)
    after: Any = await asyncio.to_thread(real_cloud.admin.get, node)
    assert [each["reason"] for each in after["status"]["conditions"]] == ["Offline"]
    await wait_until_stored(hub, small_disk, '"name":"later"')
    assert "cache.unreadable" not in await asyncio.to_thread(os.listdir, small_disk.seen / "state")
    await asyncio.to_thread(hub.kill)
    link.refuse()
    await asyncio.to_thread(hub.start)
    assert await service_names(hub) == before | {"later"}
