"""A link that flaps, hangs up, or is silent: clients are hardly affected, and the cloud is not flooded with
requests."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from kube.wire.encoding import Encoding
from tests.cloud.audit import requests
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.objects import headless
from tests.hub.support.outage import NOTICE
from tests.hub.support.process import SLACK, Hub, started
from tests.hub.support.streams import Events, listed, watching


@pytest.mark.parametrize("component", ["kubelet", "kube-proxy"])
async def test_readers_of_a_link_that_accepts_and_hangs_up_get_the_copy(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str, component: str
) -> None:
    """Like a load balancer without servers: consistent lists were once 502 until the next probe, 3 s later."""
    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, headless("first"))
    await asyncio.to_thread(hub.start)
    async with watching(hub.url, path, component=component) as events:
        await events.first("ADDED", "first")
        for _ in range(3):
            await asyncio.to_thread(link.hang_up)
            for _ in range(3):
                assert list(await listed(hub.url, path, component=component)) == ["first"]
            await asyncio.to_thread(link.carry)
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 1, 20)
        assert not events.ended


@pytest.mark.timeout(240)
async def test_clients_lose_nothing_on_a_link_that_flaps_forty_times(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    def state(events: Events) -> set[str]:
        """Return the objects of a client that follows this watch, by name."""
        have: set[str] = set()
        for each in events.seen:
            if each.type == "DELETED":
                have.discard(each.name)
            elif each.type in ("ADDED", "MODIFIED"):
                have.add(each.name)
        return have

    hub, link = linked
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, headless("first"))
    await asyncio.to_thread(hub.start)
    flaps = 40
    # Seconds up and seconds down.
    phase = 0.3
    # Attempts of one source per second: its first backoff step, which no client can shorten.
    per_second = 1 / 0.8
    async with (
        watching(hub.url, path, component="kube-proxy", encoding=Encoding.PROTOBUF) as filtered,
        watching(hub.url, path, component="kubelet") as plain,
    ):
        await filtered.first("ADDED", "first")
        await plain.first("ADDED", "first")
        mark, accepted = real_cloud.audit_mark(), link.traffic.accepted
        answered, began = 0, time.monotonic()
        for flap in range(flaps):
            await asyncio.to_thread(link.refuse)
            await asyncio.to_thread(real_cloud.admin.post, path, headless(f"s{flap}"))
            if flap >= 5:
                await asyncio.to_thread(real_cloud.admin.delete, f"{path}/s{flap - 5}")
            # Cached reads succeed in any state of the link; uncached ones get the node's copy.
            got = await listed(hub.url, path, component="kube-proxy", resourceVersion="0")
            assert "first" in got
            got = await listed(hub.url, f"{path}", component="kubelet")
            answered += "first" in got
            await asyncio.sleep(phase)
            await asyncio.to_thread(link.carry)
            await asyncio.sleep(phase)
        assert answered == flaps
        wanted = {"first", *(f"s{number}" for number in range(flaps - 5, flaps))}
        for events in (filtered, plain):
            await events.until(lambda _, events=events: state(events) == wanted, 60)  # type: ignore[misc]  # bound
            assert not events.ended
        tried = Counter(
            re.sub(r"resourceVersion=\d+|timeoutSeconds=\d+", "", each.uri)
            for each in requests(real_cloud.audit(mark))
            if each.user_agent == "edgehub" and each.verb in ("list", "watch")
        )
        assert sum(tried.values()) > 0
        seconds = time.monotonic() - began
        assert max(tried.values()) <= seconds * per_second, tried
        # One probe a second, and the reads above.
        assert link.traffic.accepted - accepted <= sum(tried.values()) + 2 * flaps + seconds
    assert set(await listed(hub.url, path, component="kube-proxy", resourceVersion="0")) == wanted


async def test_a_black_hole_is_noticed_and_its_streams_are_cut(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    async def get(url: str) -> int:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            await answer.read()
            return answer.status

    port = int(cloud.url.rpartition(":")[2])
    services = "/api/v1/services"
    events = "/api/v1/namespaces/default/events"
    with Link(LOOPBACK, port) as link:
        async with started(Hub(tmp_path, f"http://{LOOPBACK}:{link.port}")) as hub:
            await listed(hub.url, services, component="kube-proxy", resourceVersion="0")
            async with (
                watching(hub.url, events, component="reader", resourceVersion="0") as relayed,
                watching(hub.url, services, component="kube-proxy", resourceVersion="0") as viewed,
            ):
                await asyncio.to_thread(link.black_hole)
                await relayed.until(lambda _: relayed.ended, NOTICE + SLACK)
                assert not viewed.ended, "a view is the node's own and stays open"
                code = await get(hub.url + events)
                assert code == 503
                # A list from the node's copy does not need the cloud.
                await listed(hub.url, services, component="kube-proxy", resourceVersion="0")
                await asyncio.to_thread(link.carry)
                service = {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 80}]}}
                cloud.store.create({"apiVersion": "v1", "kind": "Service", **service})
                await viewed.first("ADDED", "late", 15)
