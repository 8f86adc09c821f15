"""A hub on a link with delay, jitter and loss: it starts, it stays online, and what clients write arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.cloud.fixtures import OpenLink
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub
from tests.hub.support.streams import watching

EVENTS = "/api/v1/namespaces/{}/events"
WRITES = 6
PAUSE = 2.0
"""Seconds between writes: longer than an answer takes on most links here, so that the link is quiet in between."""


def outages(hub: Hub) -> list[str]:
    return [line for line in hub.process.lines if "is down" in line]


async def write(hub: Hub, namespace: str, name: str) -> int:
    """The status of the answer to a write of an event."""
    involved = {"kind": "Pod", "namespace": namespace, "name": "p"}
    body = {"metadata": {"name": name}, "involvedObject": involved, "reason": "R", "type": "Normal"}
    url = hub.url + EVENTS.format(namespace)
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        return answer.status


async def test_a_hub_starts_over_a_satellite(cloud: ScriptableCloud, link: OpenLink, tmp_path: Path) -> None:
    url = urlsplit(cloud.url)
    opened = link(url.hostname or "", url.port or 0)
    opened.carry(delay=1.0, jitter=0.1)
    hub = Hub(tmp_path, f"http://{opened.host}:{opened.port}")
    await asyncio.to_thread(hub.start)
    assert outages(hub) == []
    await asyncio.to_thread(hub.stop)


@pytest.mark.parametrize("delay", [0.3, 1.0, 1.5])
async def test_a_hub_starts_over_any_link(linked: tuple[Hub, Link], delay: float) -> None:
    """At 0.3 s each way the hub once saw an outage, and at more it was never ready."""
    hub, link = linked
    link.carry(delay=delay, jitter=delay / 10)
    await asyncio.to_thread(hub.start)
    assert outages(hub) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda link: link.carry(delay=1.5, jitter=0.1), id="round trips of 3 s at once"),
        pytest.param(lambda link: link.carry(delay=0.1, jitter=0.1, loss=0.05), id="loss"),
    ],
)
async def test_a_link_that_gets_worse_is_no_outage(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str, change: Callable[[Link], None]
) -> None:
    hub, link = linked
    link.carry(delay=0.025)
    await asyncio.to_thread(hub.start)
    path = f"/api/v1/namespaces/{namespace}/services"
    async with watching(hub.url, path, component="kube-proxy") as events:
        under_way = asyncio.create_task(write(hub, namespace, "w"))
        change(link)
        written = [await under_way]
        for number in range(WRITES):
            await asyncio.sleep(PAUSE)
            written.append(await write(hub, namespace, f"w{number}"))
        body = {"metadata": {"name": "late"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
        await asyncio.to_thread(real_cloud.admin.post, path, body)
        await events.first("ADDED", "late")
        assert not events.ended
    assert outages(hub) == []
    assert set(written) == {201}
    found = await asyncio.to_thread(real_cloud.admin.get, EVENTS.format(namespace))
    assert len(found["items"]) == len(written), "the cloud itself answered"
