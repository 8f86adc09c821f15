"""A hub's first requests: at a restart from disk without changes, and as a pool's follower."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import urllib3

from tests.cloud.scriptable.request_log import LoggedRequest
from tests.hub.support.lone_links import LoneLinks, Member, lone_links
from tests.hub.support.objects import service

SERVICES = 60
"""More Services than the hub compares by name."""
INPUTS = ("nodes", "configmaps", "configmaps", "configmaps", "nodepools")
"""The reads of a hub in a pool for itself: its Node, the rules, the leaders, the client CA, and its pool."""
FIRST = Counter({**Counter(f"list {each}" for each in INPUTS), **Counter(f"watch {each}" for each in INPUTS)})
SETTLED = 2.0
"""Seconds after which a hub sends only probes; no event shows the end of its requests."""


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[LoneLinks]:
    """Run a leader and a follower that have read the Services and written all their data."""
    async with lone_links(tmp_path, (), ()) as made:
        for number in range(SERVICES):
            obj = service(f"s{number}", {})
            obj["metadata"]["namespace"] = "default"
            made.cloud.store.create({"apiVersion": "v1", "kind": "Service", **obj})
        for each in made.members:
            await asyncio.to_thread(listed, each)
        yield made


def listed(member: Member) -> None:
    """Read the Services as kube-proxy does."""
    headers = {"User-Agent": "kube-proxy/v1", "Accept": "application/vnd.kubernetes.protobuf"}
    with urllib3.PoolManager(retries=False, headers=headers, timeout=30) as client:
        assert client.request("GET", f"{member.hub.url}/api/v1/services?resourceVersion=0").status == 200


async def requests_of(pool: LoneLinks, member: Member) -> Counter[str]:
    """Start a stopped hub; return its requests to the cloud, without probes."""
    pool.cloud.requests.clear()
    await asyncio.to_thread(member.hub.start)
    await asyncio.to_thread(listed, member)
    user = f"system:node:{member.name}"
    await asyncio.sleep(SETTLED)
    return Counter(what(each) for each in pool.cloud.requests if each.user == user and each.path != "/livez")


def what(request: LoggedRequest) -> str:
    return f"{request.verb} {request.resource or request.path}"


async def test_a_follower_reads_discovery_from_its_leader(pool: LoneLinks) -> None:
    """Discovery is about ten kilobytes: more than all its other first reads."""
    _, follower = pool.members
    await asyncio.to_thread(follower.hub.stop)
    shutil.rmtree(follower.hub.state)
    assert await requests_of(pool, follower) == FIRST
    await asyncio.to_thread(follower.hub.wait_until_stored, "APIGroup", 1)


async def test_a_restart_with_nothing_changed_fetches_nothing_again(pool: LoneLinks) -> None:
    """The peer port's announcement was once written again, and answered with the complete Node."""
    leader, follower = pool.members
    for each in pool.members:
        await asyncio.to_thread(each.hub.stop)
    # The last event in the Services' history, and the cloud's version, from which clients' versions are known.
    assert await requests_of(pool, leader) == FIRST + Counter(["watch services", "list services"])
    assert await requests_of(pool, follower) == FIRST + Counter(["list services"])
