"""A hub on sockets of a service manager is replaced under load: no connection is refused, and watches continue."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.addons.support.observed import until
from tests.cloud.real import RealCloud
from tests.hub.support.load import REFUSED, Load
from tests.hub.support.objects import headless
from tests.hub.support.process import SLACK, Hub
from tests.hub.support.site import hub_before
from tests.hub.support.streams import Events, Seen, listed, watching

SERVICES = "/api/v1/services"
ZERO = f"{SERVICES}?resourceVersion=0"


async def more(events: Events, known: int) -> list[Seen]:
    """Return the events of a watch after the first ones, once there are any, or the watch has ended."""
    await events.until(lambda seen: events.ended or len(seen) > known, timeout=3600)
    return events.seen[known:]


async def state(hub: Hub) -> tuple[str, list[str]]:
    """Return the hub's version of the services, and their names."""
    async with (
        aiohttp.ClientSession(hub.url, headers={"User-Agent": "kube-proxy/v1"}) as session,
        session.get(ZERO) as answer,
    ):
        answer.raise_for_status()
        found = await answer.json()
    return found["metadata"]["resourceVersion"], [each["metadata"]["name"] for each in found["items"]]


async def follow(hub: Hub, seen: list[str]) -> None:
    """List and watch like a reflector: from the last version when a watch ends, from a list after an ERROR. A new
    process answers an old version with ERROR if a filter changed the client's view."""
    version = ""
    while True:
        try:
            if not version:
                version, names = await state(hub)
                seen += names
            async with watching(
                *(hub.url, SERVICES),
                component="kube-proxy",
                resourceVersion=version,
                allowWatchBookmarks="true",
            ) as events:
                known = 0
                while not events.ended and version:
                    for event in await more(events, known):
                        version = "" if event.type == "ERROR" else str(event.object.version)
                        known += 1
                        seen.append(event.name)
        except aiohttp.ClientConnectorError:
            seen.append(REFUSED)
        except aiohttp.ClientError:
            pass


@pytest.fixture
def hub(real_cloud: RealCloud, tmp_path: Path, node: str) -> Iterator[Hub]:
    with hub_before(real_cloud, tmp_path, node, "--wait", "60", is_handed_sockets=True) as made:
        yield made


async def test_a_restart_under_load_refuses_no_client(
    hub: Hub, real_cloud: RealCloud, namespace: str
) -> None:
    services, late = f"/api/v1/namespaces/{namespace}/services", f"late-{namespace}"
    await asyncio.to_thread(real_cloud.admin.post, services, headless("first"))
    clients = 6
    load = Load(hub.url, ZERO, "kube-proxy", clients=clients, connects_anew=True)
    watchers = 10
    seen = [list[str]() for _ in range(watchers)]
    tasks = [asyncio.create_task(load.run())]
    tasks += [asyncio.create_task(follow(hub, each)) for each in seen]
    ready = "ready$"
    try:
        await load.answers(50)
        begun = len(hub.process.lines)
        os.kill(hub.pid, signal.SIGHUP)
        await asyncio.to_thread(hub.process.wait_for_line, ready, 2 * SLACK, begun)
        await load.answers(50)
        await asyncio.to_thread(real_cloud.admin.post, services, headless(late))
        await until(
            lambda: all(late in each for each in seen) or any(map(asyncio.Task.done, tasks)), 2 * SLACK
        )
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [each for each in ends if not isinstance(each, asyncio.CancelledError)]
    print(dict(load.ends), f"longest {load.longest:.2f} s")  # printed for docs/measured.md
    assert load.ends[REFUSED] == 0
    for each in seen:
        assert REFUSED not in each
    assert late in await listed(hub.url, SERVICES, component="kube-proxy", resourceVersion="0")
