"""A hub that restarts on the real control plane: offline it serves from disk, online it reads almost nothing again."""

from __future__ import annotations

import asyncio

import pytest

from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import headless
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed, watching

PROTOBUF = Encoding.PROTOBUF


def make_services(cloud: RealCloud, namespace: str, count: int) -> None:
    for number in range(count):
        cloud.admin.post(f"/api/v1/namespaces/{namespace}/services", headless(f"s{number}", 2000))


@pytest.mark.parametrize("crash", [False, True], ids=["sigterm", "kill -9"])
async def test_a_hub_restarted_offline_serves_lists_and_watches_from_disk(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str, crash: bool
) -> None:
    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(make_services, real_cloud, namespace, 3)
    async with started(hub):
        before = await listed(hub.url, path, component="kube-proxy", encoding=PROTOBUF, resourceVersion="0")
        # The disk is written asynchronously, and a crash loses unwritten data.
        await asyncio.to_thread(hub.wait_until_stored, namespace, 3)
        await asyncio.to_thread(hub.kill if crash else hub.stop)
        link.refuse()
        await asyncio.to_thread(hub.start)
        after = await listed(hub.url, path, component="kube-proxy", encoding=PROTOBUF, resourceVersion="0")
        assert {name: each.version for name, each in after.items()} == {
            name: each.version for name, each in before.items()
        }
        async with watching(
            *(hub.url, path),
            component="kube-proxy",
            encoding=PROTOBUF,
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
        ) as events:
            await events.until(lambda seen: any(each.type == "BOOKMARK" for each in seen))
            assert sorted(each.name for each in events.seen) == ["", "s0", "s1", "s2"]
            await asyncio.to_thread(real_cloud.admin.delete, f"{path}/s1")
            link.carry()
            await events.first("DELETED", "s1")
            assert not [each for each in events.seen if each.type == "MODIFIED"]


async def test_a_hub_restarted_online_resumes_from_its_version(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    hub, _ = linked
    await asyncio.to_thread(make_services, real_cloud, namespace, 300)

    services = "/api/v1/services"

    async def copy() -> None:
        """Start the hub; return when a client has its list."""
        await asyncio.to_thread(hub.start)
        got = await listed(hub.url, services, component="kube-proxy", encoding=PROTOBUF, resourceVersion="0")
        assert {"s0", "s299"} <= got.keys()

    try:
        await copy()
        await asyncio.to_thread(hub.wait_until_stored, namespace, 300)
        await asyncio.to_thread(hub.stop)
        mark = real_cloud.audit_mark()
        await asyncio.to_thread(real_cloud.admin.delete, f"/api/v1/namespaces/{namespace}/services/s7")
        await copy()
        own = f"/api/v1/namespaces/{namespace}/services"  # other tests create services with these names
        async with watching(
            hub.url, own, component="kube-proxy", resourceVersion="0", encoding=PROTOBUF
        ) as events:
            # On busy cores the copy may be served before the cloud sends the deletion.
            await events.until(lambda seen: len({each.name for each in seen}) >= 299)
            if any(each.name == "s7" for each in events.seen):
                await events.first("DELETED", "s7")
        asked = [
            event
            for event in real_cloud.audit(mark)
            if event.user == f"system:node:{hub.node}" and event.stage == "RequestReceived"
        ]
        lists = [event.uri for event in asked if event.verb == "list"]
        # One object and a count verify the history: neither objects nor names are listed.
        of_services = [uri for uri in lists if uri.startswith(services)]
        assert all(uri.endswith("limit=1") for uri in of_services), lists
        assert len(of_services) <= 2
    finally:
        await asyncio.to_thread(hub.stop)
