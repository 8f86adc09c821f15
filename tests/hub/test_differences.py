"""A hub before another hub: what the one reads from the other crosses as differences, whoever watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from kube.differences.records import CODING
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub
from tests.hub.support.streams import Seen, watching

SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
HEADERS = {"User-Agent": "kube-proxy/v1", "Accept": Encoding.JSON.value}
CHANGES = 20


def endpoint_slice(ready: int) -> Json:
    """A slice of 200 endpoints, the first ones of which are ready."""
    endpoints = [
        {
            "addresses": [f"10.0.{number // 100}.{number * 37 % 250}"],
            "conditions": {"ready": number < ready},
            "targetRef": {"kind": "Pod", "name": f"web-{number * 2654435761 % 2**32:08x}"},
        }
        for number in range(200)
    ]
    metadata = {"name": "web-abcde", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}}
    head = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata}
    return {**head, "addressType": "IPv4", "endpoints": endpoints}


def keep_for_hubs(cloud: ScriptableCloud) -> None:
    """Have hubs keep what other hubs ask for."""
    data = {"cache_agents": "edgehub,kube-proxy"}
    metadata = {"name": "yurt-hub-cfg", "namespace": "kube-system"}
    cloud.store.create({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data})


@pytest.fixture
async def chain(cloud: ScriptableCloud, tmp_path: Path) -> AsyncIterator[tuple[Hub, Hub]]:
    """A hub before the cloud, which keeps what other hubs ask for, and a hub before that hub."""
    keep_for_hubs(cloud)
    first = Hub(tmp_path / "first", cloud.url, node="first")
    second = Hub(tmp_path / "second", first.url, node="second")
    try:
        await asyncio.to_thread(first.start)
        await asyncio.to_thread(second.start)
        yield first, second
    finally:
        await asyncio.to_thread(second.stop)
        await asyncio.to_thread(first.stop)


async def test_changes_cross_as_differences_and_arrive_whole(
    cloud: ScriptableCloud, chain: tuple[Hub, Hub]
) -> None:
    cloud.store.create(endpoint_slice(200))
    first, second = chain
    async with watching(second.url, SLICES, component="kube-proxy", encoding=Encoding.JSON) as watch:
        await watch.until(lambda seen: len(seen) == 1)
        before = await asyncio.to_thread(received, second, first)
        for ready in range(CHANGES):
            cloud.store.put(endpoint_slice(ready))
        seen = await watch.until(lambda seen: len(seen) == 1 + CHANGES)
        crossed = await asyncio.to_thread(received, second, first) - before
    assert [each.type for each in seen] == ["ADDED"] + ["MODIFIED"] * CHANGES
    endpoints = [each.object.fields.children("endpoints") for each in seen[1:]]
    assert [sum(bool(each.child("conditions").flag("ready")) for each in some) for some in endpoints] == list(
        range(CHANGES)
    )
    whole = sum(len(each.object.encode()) for each in seen[1:])
    assert crossed * 15 < whole
    assert not await asyncio.to_thread(second.metric, "edgehub_source_errors_total", reason="difference")


def has(events: int, seen: list[Seen]) -> bool:
    return len(seen) == events


async def test_a_client_that_asks_for_nothing_gets_what_it_always_got(
    cloud: ScriptableCloud, chain: tuple[Hub, Hub]
) -> None:
    cloud.store.create(endpoint_slice(200))
    first, _ = chain
    query = {"resourceVersion": "0"}
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        for accepted, coding in (("gzip, zstd", None), (f"{CODING}, zstd", "zstd")):
            headers = {**HEADERS, "Accept-Encoding": accepted}
            async with session.get(first.url + SLICES, params=query, headers=headers) as answer:
                assert answer.headers.get("Content-Encoding") == coding
        for accepted, coding in (("gzip, zstd", None), (f"{CODING}, gzip", CODING)):
            headers = {**HEADERS, "Accept-Encoding": accepted}
            params = {**query, "watch": "true"}
            async with session.get(first.url + SLICES, params=params, headers=headers) as answer:
                assert answer.headers.get("Content-Encoding") == coding


def received(hub: Hub, server: Hub) -> float:
    """Bytes that a hub has got from its server."""
    return hub.metric("edgehub_upstream_bytes_total", direction="down", server=server.url)
