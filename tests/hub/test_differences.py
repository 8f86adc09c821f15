"""A hub before another hub: what the one reads from the other crosses as differences, whoever watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import zstandard

from kube.differences.records import CODING, HEAD, MAX_RECORD, MAX_UNPACKED_RECORD, PREFIX, Kind
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub
from tests.hub.support.spoiler import Spoiler
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


def damaged(piece: bytes) -> bytes:
    return piece[:-9] + bytes([piece[-9] ^ 1]) + piece[-8:]


def oversized(piece: bytes) -> bytes:
    return HEAD.pack(MAX_RECORD + 1, Kind.DIFFERENCE) + piece


def exploding(_piece: bytes) -> bytes:
    """Some bytes that unpack to more than MAX_RECORD."""
    packed = zstandard.ZstdCompressor().compress(bytes(MAX_UNPACKED_RECORD + 1))
    return HEAD.pack(len(packed), Kind.PACKED) + packed


def foreign(piece: bytes) -> bytes:
    """A difference to a version that no receiver holds."""
    version, *sizes = PREFIX.unpack_from(piece, HEAD.size)
    start = HEAD.size + PREFIX.size
    return piece[: HEAD.size] + PREFIX.pack(version + 10**6, *sizes) + piece[start:]


def unknown(piece: bytes) -> bytes:
    return HEAD.pack(len(piece) - HEAD.size, max(Kind) + 1) + piece[HEAD.size :]


def has(events: int, seen: list[Seen]) -> bool:
    return len(seen) == events


async def test_records_that_do_not_fit_cost_neither_an_event_nor_a_list(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    """The reader goes on from the version that it has reached, with whole objects, until its watch ends."""
    keep_for_hubs(cloud)
    cloud.store.create(endpoint_slice(200))
    first, ready = Hub(tmp_path / "first", cloud.url, node="first"), 0
    async with Spoiler(first.url).running() as spoiler:
        second = Hub(tmp_path / "second", spoiler.url, node="second")
        try:
            await asyncio.to_thread(first.start)
            await asyncio.to_thread(second.start)
            async with watching(second.url, SLICES, component="kube-proxy") as watch:
                for number, spoil in enumerate((damaged, oversized, exploding, foreign, unknown), 1):
                    spoiler.end_watches()
                    spoiler.spoil_next(spoil)
                    for _ in range(3):
                        cloud.store.put(endpoint_slice(ready))
                        ready += 1
                        await watch.until(partial(has, 1 + ready))
                    errors = await asyncio.to_thread(
                        second.metric, "edgehub_source_errors_total", reason="difference"
                    )
                    assert (spoil, errors) == (spoil, number)
                assert [each.type for each in watch.seen] == ["ADDED"] + ["MODIFIED"] * ready
                assert not watch.ended
            [lists] = [each["lists"] for each in second.sources() if each["path"] == SLICES]
            assert lists == 1
        finally:
            await asyncio.to_thread(second.stop)
            await asyncio.to_thread(first.stop)


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
