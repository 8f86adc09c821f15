"""Closed watches and later large objects: a real hub's link transfers these only for open clients."""

from __future__ import annotations

import asyncio

from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed, watching


async def test_large_objects_are_not_transferred_for_closed_watches(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    """50 closed watches once transferred 45 objects fifty times, and a list meanwhile took more than a minute."""

    async def closed_watches(hub: Hub, path: str, count: int) -> None:
        """Start `count` sources in the hub; the client of each disconnects at its first bookmark."""
        for number in range(count):
            async with watching(
                *(hub.url, path),
                component="kubelet",
                encoding=Encoding.PROTOBUF,
                labelSelector=f"!x{number}",
                sendInitialEvents="true",
                resourceVersionMatch="NotOlderThan",
                allowWatchBookmarks="true",
            ) as events:
                await events.until(lambda seen: any(each.type == "BOOKMARK" for each in seen))

    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    rights = ("--clusterrole=cluster-admin", f"--user=system:node:{hub.node}")
    grant = ("create", "rolebinding", "reads-all", *rights, f"--namespace={namespace}")
    await asyncio.to_thread(real_cloud.kubectl, *grant)
    watches = 50
    objects = 12
    bound = "events that nobody reads"
    large = 900_000
    async with started(hub):
        await closed_watches(hub, path, watches)
        before = link.traffic.down
        for number in range(objects):
            await asyncio.to_thread(
                real_cloud.admin.post,
                path,
                {"metadata": {"name": f"large{number}"}, "data": {"key": "x" * large}},
            )
        got = await listed(hub.url, path, component="somebody", encoding=Encoding.PROTOBUF)
        assert len(got) >= objects
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_bounds_reached_total", watches, 60, bound=bound)
        assert link.traffic.down - before < watches * large / 2
