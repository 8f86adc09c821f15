"""Callers whose tokens the cloud refuses: kube-apiserver closes only the connections with such tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from kube.json_type import Json
from tests.addons.support.observed import until
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule
from tests.hub.support.process import SLACK, Hub
from tests.hub.support.streams import watching


async def test_refused_tokens_affect_neither_the_hub_nor_callers_with_accepted_ones(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    async def listed_with(url: str, number: int) -> int:
        """Return the response to a list with a token that no server issued."""
        headers = {"Authorization": f"Bearer bad{number}", "User-Agent": "coredns/v1"}
        query = {"resourceVersion": "0"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, params=query) as answer,
        ):
            return answer.status

    hub, _ = linked
    readers = [rule("", "configmaps", "list watch")]
    may_read = rights("configmaps", readers, account(namespace, "default"), namespace=namespace)
    await asyncio.to_thread(real_cloud.apply, may_read)
    token = await asyncio.to_thread(real_cloud.token, namespace, "default")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    services = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(hub.start)
    good = {"Authorization": f"Bearer {token}"}
    bad_tokens = 200
    async with (
        watching(hub.url, path, component="coredns", headers=good) as own,
        watching(hub.url, services, component="kubelet") as node,
    ):
        for number in range(0, bad_tokens, 10):
            codes = await asyncio.gather(
                *(listed_with(hub.url + path, each) for each in range(number, number + 10))
            )
            assert set(codes) == {401}
        made: Json = {"metadata": {"name": "made"}}
        await asyncio.to_thread(real_cloud.admin.post, path, {**made, "data": {"a": "b"}})
        await own.first("ADDED", "made")
        assert not own.ended
        assert not node.ended
    assert await asyncio.to_thread(hub.metric, "edgehub_source_errors_total", reason="broken off") == 0
    # File descriptors: a hub with two watches has about 40; each bad token once leaked one.
    most_descriptors = 60
    # The hub closes its side of each connection that kube-apiserver ended.
    await until(lambda: len(list(Path(f"/proc/{hub.process.pid}/fd").iterdir())) < most_descriptors, SLACK)
    assert await asyncio.to_thread(hub.metric, "edgehub_server_up") == 1
