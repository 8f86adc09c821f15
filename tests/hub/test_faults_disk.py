"""A disk that fails, is locked or damaged: clients continue, the hub reports the error, and uses the disk again."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
from functools import partial

import pytest

from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import headless, service_names
from tests.hub.support.process import Hub
from tests.hub.support.streams import watching

service = partial(headless, filler=2000)


async def test_writes_that_fail_on_disk_are_reported_and_repeated(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    def limit_files(hub: Hub, size: int) -> None:
        """Limit the size of the hub's files: to SQLite, a disk that fails in the middle of a write."""
        _, hard = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (size, hard))

    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(hub.start)
    await service_names(hub)
    errors = "edgehub_cache_write_errors_total"
    assert hub.metric(errors) == 0
    limit_files(hub, 4096)
    async with watching(hub.url, path, component="kube-proxy") as events:
        for name in ("a", "b"):
            await asyncio.to_thread(real_cloud.admin.post, path, service(name))
            await events.first("ADDED", name)
        await hub.logged("the disk cannot be used, the hub continues without")
        assert hub.metric(errors) > 0
        assert {"a", "b"} <= await service_names(hub)
        limit_files(hub, resource.RLIM_INFINITY)
        await hub.logged("the disk can be used again")
        assert {"a", "b"} <= await service_names(hub)
    await asyncio.to_thread(hub.kill)
    link.refuse()
    await asyncio.to_thread(hub.start)
    assert {"a", "b"} <= await service_names(hub)


async def test_a_locked_disk_blocks_no_client(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(hub.start)
    await service_names(hub)
    other = sqlite3.connect(hub.state / "cache" / "cache.db", isolation_level=None, check_same_thread=False)
    with contextlib.closing(other):
        other.execute("BEGIN EXCLUSIVE")
        # All these requests are answered while the lock is held.
        async with watching(hub.url, path, component="kube-proxy") as events:
            for name in ("a", "b", "c"):
                await asyncio.to_thread(real_cloud.admin.post, path, service(name))
                await events.first("ADDED", name)
        assert {"a", "b", "c"} <= await service_names(hub)
        await hub.logged("the disk cannot be used.* locked")
        other.execute("ROLLBACK")
    await hub.logged("the disk can be used again")
    # A start while the disk is locked works, too.
    await asyncio.to_thread(hub.stop)
    other = sqlite3.connect(hub.state / "cache" / "cache.db", isolation_level=None, check_same_thread=False)
    with contextlib.closing(other):
        other.execute("BEGIN EXCLUSIVE")
        await asyncio.to_thread(hub.start)
        assert {"a", "b", "c"} <= await service_names(hub)
        other.execute("ROLLBACK")
    await asyncio.to_thread(hub.kill)
    link.refuse()
    await asyncio.to_thread(hub.start)
    assert {"a", "b", "c"} <= await service_names(hub)


async def test_an_unreadable_database_is_moved_aside(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    """`tests/kube/disk/test_database.py` has all kinds of damage."""
    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/services"
    for number in range(5):
        await asyncio.to_thread(real_cloud.admin.post, path, service(f"s{number}"))
    await asyncio.to_thread(hub.start)
    before = await service_names(hub)
    await asyncio.to_thread(hub.stop)
    database = hub.state / "cache" / "cache.db"
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size // 2)
    link.refuse()
    await asyncio.to_thread(lambda: hub.start(ready=False))
    with pytest.raises(AssertionError, match="503"):
        await service_names(hub)
    await hub.logged("cannot be read .*it is now .*cache.unreadable")
    link.carry()
    await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 1, 20)
    assert await service_names(hub) == before
    # Data is stored again.
    await asyncio.to_thread(hub.stop)
    link.refuse()
    await asyncio.to_thread(hub.start)
    assert await service_names(hub) == before
