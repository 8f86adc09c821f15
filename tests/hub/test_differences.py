"""Watches of differences between hubs: a hub sends them to another hub for every watch, whatever its client is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from kube.differences.records import CODING
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.addons.support.samples import config_map
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub
from tests.hub.support.streams import watching


@pytest.fixture
async def chain(cloud: ScriptableCloud, tmp_path: Path) -> AsyncIterator[tuple[Hub, Hub]]:
    """Start a hub in front of the cloud, which caches the reads of other hubs, and a second hub in front of it."""
    cloud.store.create(config_map({"cache_agents": "edgehub,kube-proxy"}))
    first = Hub(tmp_path / "first", cloud.url, node="first")
    second = Hub(tmp_path / "second", first.url, node="second")
    try:
        await asyncio.to_thread(first.start)
        await asyncio.to_thread(second.start)
        yield first, second
    finally:
        await asyncio.to_thread(second.stop)
        await asyncio.to_thread(first.stop)


async def test_changes_are_sent_as_differences_to_a_hub_and_as_objects_to_any_client(
    cloud: ScriptableCloud, chain: tuple[Hub, Hub]
) -> None:
    def received(hub: Hub, server: Hub) -> float:
        """Return the bytes that a hub has received from its server."""
        return hub.metric("edgehub_upstream_bytes_total", direction="down", server=server.url)

    def endpoint_slice(ready: int) -> Json:
        """Return a slice of 200 endpoints, of which the first ones are ready."""
        endpoints = [
            {
                "addresses": [f"10.0.{number // 100}.{number * 37 % 250}"],
                "conditions": {"ready": number < ready},
                "targetRef": {"kind": "Pod", "name": f"web-{number * 2654435761 % 2**32:08x}"},
            }
            for number in range(200)
        ]
        metadata = {
            "name": "web-abcde",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"},
        }
        head = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata}
        return {**head, "addressType": "IPv4", "endpoints": endpoints}

    cloud.store.create(endpoint_slice(200))
    first, second = chain
    slices = "/apis/discovery.k8s.io/v1/endpointslices"
    headers = {"User-Agent": "kube-proxy/v1", "Accept": Encoding.JSON.value}
    async with aiohttp.ClientSession(auto_decompress=False, headers=headers) as session:
        for watch, accepted, coding in (
            ("false", "gzip, zstd", None),
            ("false", f"{CODING}, zstd", "zstd"),
            ("true", "gzip, zstd", None),
            ("true", f"{CODING}, gzip", CODING),
        ):
            query = {"resourceVersion": "0", "watch": watch}
            asked = session.get(first.url + slices, params=query, headers={"Accept-Encoding": accepted})
            async with asked as answer:
                assert answer.headers.get("Content-Encoding") == coding
    changes = 20
    async with watching(second.url, slices, component="kube-proxy", encoding=Encoding.JSON) as events:
        await events.until(lambda seen: len(seen) == 1)
        before = await asyncio.to_thread(received, second, first)
        for ready in range(changes):
            cloud.store.put(endpoint_slice(ready))
        seen = await events.until(lambda seen: len(seen) == 1 + changes)
        crossed = await asyncio.to_thread(received, second, first) - before
    assert [each.type for each in seen] == ["ADDED"] + ["MODIFIED"] * changes
    endpoints = [each.object.fields.children("endpoints") for each in seen[1:]]
    assert [sum(bool(each.child("conditions").flag("ready")) for each in some) for some in endpoints] == list(
        range(changes)
    )
    full_size = sum(len(each.object.encode()) for each in seen[1:])
    assert crossed * 15 < full_size
    assert not await asyncio.to_thread(second.metric, "edgehub_source_errors_total", reason="difference")
