"""A server that is gone without a word is noticed within six seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import SLACK, Hub, started
from tests.hub.support.streams import listed, watching

NOTICE = 6.0
"""Seconds in which the hub promises to notice a black hole."""
EVENTS = "/api/v1/namespaces/default/events"
SERVICES = "/api/v1/services"


async def get(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        await answer.read()
        return answer.status


async def test_a_black_hole_is_noticed_and_its_streams_are_cut(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    port = int(cloud.url.rpartition(":")[2])
    with Link(LOOPBACK, port) as link:
        async with started(Hub(tmp_path, f"http://{LOOPBACK}:{link.port}")) as hub:
            await listed(hub.url, SERVICES, component="kube-proxy", resourceVersion="0")
            async with (
                watching(hub.url, EVENTS, component="reader", resourceVersion="0") as relayed,
                watching(hub.url, SERVICES, component="kube-proxy", resourceVersion="0") as viewed,
            ):
                await asyncio.to_thread(link.black_hole)
                await relayed.until(lambda _: relayed.ended, NOTICE + SLACK)
                assert not viewed.ended, "a view is the node's own and stays open"
                code = await get(hub.url + EVENTS)
                assert code == 503
                # A list from the node's copy does not need the cloud.
                await listed(hub.url, SERVICES, component="kube-proxy", resourceVersion="0")
                await asyncio.to_thread(link.carry)
                service = {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 80}]}}
                cloud.store.create({"apiVersion": "v1", "kind": "Service", **service})
                await viewed.first("ADDED", "late", 15)
