"""A hub on sockets of a service manager is replaced under load: no connection is refused, and watches go on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from kube.json_type import Json
from tests.addons.support.observed import until
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.real import RealCloud
from tests.hub.support.process import SLACK, Hub
from tests.hub.support.streams import Events, Seen, listed, watching

CLIENTS = 6
WATCHERS = 10
READY = "ready$"


class Load:
    """Clients that open a connection for each request, until they are told to stop; how the requests ended."""

    def __init__(self, url: str) -> None:
        self.ends: Counter[str] = Counter()
        self.longest = 0.0
        """Seconds that a request took at most."""
        self._url = url

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        headers = {"User-Agent": "kube-proxy/v1"}
        async with aiohttp.ClientSession(self._url, connector=connector, headers=headers) as session:
            await asyncio.gather(*(self._ask(session) for _ in range(CLIENTS)))

    async def answers(self, count: int) -> None:
        """Return when so many more requests were answered."""
        wanted = self.ends["200"] + count
        await until(lambda: self.ends["200"] >= wanted, 2 * SLACK)

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        while True:
            began = time.monotonic()
            try:
                async with session.get("/api/v1/services", params={"resourceVersion": "0"}) as answer:
                    await answer.read()
                    self.ends[str(answer.status)] += 1
            except aiohttp.ClientConnectorError:
                self.ends["refused"] += 1
            except aiohttp.ClientError:
                self.ends["broken off"] += 1  # it was under way in the hub that ended
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.01)


async def more(events: Events, known: int) -> list[Seen]:
    """The events of a watch beyond the first ones, as soon as there are any, or the watch has ended."""
    await events.until(lambda seen: events.ended or len(seen) > known, timeout=3600)
    return events.seen[known:]


async def follow(hub: Hub, version: str, seen: list[str]) -> None:
    """Watch as a reflector does: from the last version again whenever the watch ends."""
    while True:
        try:
            async with watching(
                hub.url, "/api/v1/services", component="kube-proxy", resourceVersion=version
            ) as events:
                known = 0
                while not events.ended:
                    for event in await more(events, known):
                        assert event.type in ("ADDED", "BOOKMARK"), event.type
                        version, known = str(event.object.version), known + 1
                        seen.append(event.name)
        except aiohttp.ClientConnectorError:
            seen.append("refused")
        except aiohttp.ClientError:
            pass


def service(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}


@pytest.fixture
def hub(real_cloud: RealCloud, tmp_path: Path, node: str) -> Iterator[Hub]:
    real_cloud.apply(HUB_RBAC)
    identity = real_cloud.node_kubeconfig(node)
    with Hub(
        *(tmp_path, real_cloud.url),
        node=node,
        kubeconfig=identity,
        flags=("--wait", "60"),
        is_handed_sockets=True,
    ) as made:
        yield made


async def test_a_restart_under_load_refuses_nobody(hub: Hub, real_cloud: RealCloud, namespace: str) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, services, service("first"))
    headers, query = {"User-Agent": "kube-proxy/v1"}, {"resourceVersion": "0"}
    async with (
        aiohttp.ClientSession(hub.url, headers=headers) as session,
        session.get("/api/v1/services", params=query) as answer,
    ):
        version = (await answer.json())["metadata"]["resourceVersion"]
    load, seen = Load(hub.url), [list[str]() for _ in range(WATCHERS)]
    tasks = [asyncio.create_task(load.run())]
    tasks += [asyncio.create_task(follow(hub, version, each)) for each in seen]
    try:
        await load.answers(50)
        begun = len(hub.process.lines)
        os.kill(hub.pid, signal.SIGHUP)
        await asyncio.to_thread(hub.process.wait_for_line, READY, 2 * SLACK, begun)
        await load.answers(50)
        await asyncio.to_thread(real_cloud.admin.post, services, service("late"))
        await until(
            lambda: all("late" in each for each in seen) or any(map(asyncio.Task.done, tasks)), 2 * SLACK
        )
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ends), ends
    print(dict(load.ends), f"longest {load.longest:.2f} s")
    assert load.ends["refused"] == 0
    assert set(load.ends) <= {"200", "refused", "broken off"}, load.ends
    for each in seen:
        assert each.count("late") == 1, each
        assert "refused" not in each
    assert "late" in await listed(hub.url, "/api/v1/services", component="kube-proxy", resourceVersion="0")
