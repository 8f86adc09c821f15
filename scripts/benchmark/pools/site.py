"""The site of `scripts/bench --pool nodes`: the hubs and followers of a pool, and clients of the hubs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp

from scripts.benchmark.load import (
    ENDPOINT_SLICES,
    HEADERS,
    SLICES,
    endpoint_slice,
    listed_slices,
    post_all,
    session,
    updates_of,
)
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.node_pools import POOLS
from tests.hub.support.pool_site import PATIENCE, Member, Site, eventually
from tests.hub.support.process import Hub
from tests.support.background import beside

HUBS = 6
"""Nodes of the pool with a real hub; the first two can lead."""
ENDPOINTS = 10
NET, CLIENTS_NET = 40, 41
"""The nodes have the addresses 127.0.NET.1 and so on, those without a hub 127.0.CLIENTS_NET.1 and so on."""


@dataclass(slots=True)
class Client:
    """A kube-proxy at one hub: how late each update came, and the longest time without an event."""

    hub: str
    late: list[float] = field(default_factory=list)
    gap: float = 0.0
    last: float = 0.0
    events: int = 0

    def take(self, now: float, sent: float) -> None:
        self.late.append(now - sent)
        if self.last:
            self.gap = max(self.gap, now - self.last)
        self.last, self.events = now, self.events + 1

    def forget(self) -> None:
        """Begin anew."""
        self.late.clear()
        self.gap, self.last, self.events = 0.0, 0.0, 0


class Crowd:
    """The followers without a hub, in a process of their own."""

    def __init__(self, site: Site, nodes: Sequence[str], leaders: Sequence[Member]) -> None:
        folder = site.folder / "crowd"
        folder.mkdir()
        callers = [
            (
                f"127.0.{CLIENTS_NET}.{number}",
                *map(str, site.cloud.authority.issue_node(name).write(folder, name)),
            )
            for number, name in enumerate(nodes, 1)
        ]
        given = {
            "callers": callers,
            "leaders": [f"http://{leader.address}:{site.port}" for leader in leaders],
            "authority": str(site.cloud.authority_file),
        }
        (folder / "crowd.json").write_text(json.dumps(given))
        self.size = len(callers)
        command = [sys.executable, "-m", "scripts.benchmark.pools.clients", str(folder / "crowd.json")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def state(self) -> dict[str, Any]:
        """See `scripts.benchmark.pools.clients.state`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("state\n")
        self._process.stdin.flush()
        state = json.loads(self._process.stdout.readline())
        assert isinstance(state, dict)
        return state

    def wait_until_full(self, slices: int) -> None:
        """Return when all of them watch, and have all slices."""

        def is_full() -> bool:
            state = self.state()
            return bool(state["watching"] == self.size and state["objects"] >= slices)

        eventually(is_full, "all followers watch", 10 * PATIENCE)


def fill(cloud: RealCloud, slices: int) -> None:
    post_all(cloud, ENDPOINT_SLICES, (endpoint_slice(number, ENDPOINTS) for number in range(slices)))


@contextmanager
def running(cloud: RealCloud, folder: Path, nodes: int) -> Iterator[tuple[Site, Hub, Link]]:
    """Run the hubs of the pool, whose first node leads, and a hub of a node without a pool, with its link."""
    site = Site(cloud, folder / "site", "bench", NET)
    site.folder.mkdir()
    site.prepare(*range(1, HUBS + 1))
    names = [member.name for member in site.members] + crowd_names(nodes)
    cloud.admin.patch(f"{POOLS}/bench/status", {"status": {"nodes": names}})
    leader = site.members[0]
    site.lead(leader)
    with Link(cloud.host, cloud.port) as link:
        url = f"https://{link.host}:{link.port}"
        direct = Hub(folder / "direct", url, node="direct", kubeconfig=cloud.node_kubeconfig("direct"))
        try:
            for hub in (leader.hub, direct):
                hub.start()
            eventually(lambda: leader.pool()["role"] == "leader", "the first node leads")
            for member in site.members[1:]:
                member.hub.start()
            for member in site.members[1:]:
                eventually(partial(follows, member), "the others follow")
            yield site, direct, link
        finally:
            site.close()
            direct.stop()


def follows(member: Member) -> bool:
    return bool(member.pool()["role"] == "follower")


def crowd_names(nodes: int) -> list[str]:
    return [f"bench-crowd-{number}" for number in range(1, nodes - HUBS + 1)]


@asynccontextmanager
async def watching(hub: Hub, sent: dict[str, float]) -> AsyncIterator[Client]:
    """A kube-proxy that has listed all slices from a hub, and watches them."""
    client = Client(hub.node)
    async with session() as http:
        _, version = await listed_slices(http, hub.url)
        query = f"watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=3600"
        timeout = aiohttp.ClientTimeout(total=None)
        async with http.get(f"{hub.url}{SLICES}?{query}", headers=HEADERS, timeout=timeout) as answer:
            assert answer.status == 200, await answer.read()
            async with beside(_read(answer, client, sent)):
                yield client


async def _read(answer: aiohttp.ClientResponse, client: Client, sent: dict[str, float]) -> None:
    async for came, began in updates_of(answer, sent):
        client.take(came, began)
