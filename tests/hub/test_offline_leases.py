"""Leader election among the pods of a node without its cloud: leaders keep their Lease; after the outage the cloud
decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, bound
from tests.hub.support.objects import set_rules
from tests.hub.support.outage import Outage

LEADER, FOLLOWER = "leader", "follower"


@pytest.fixture
def rules(real_cloud: RealCloud, namespace: str) -> Iterator[None]:
    set_rules(real_cloud, offline_leases=f"{namespace}/web")
    pods = [account(namespace, name) for name in (LEADER, FOLLOWER)]
    real_cloud.apply([bound("cluster-admin", *pods, name="leaders")])
    yield
    set_rules(real_cloud)


class Pod:
    """A pod that takes part in leader election, with its own token on the TLS port."""

    def __init__(self, outage: Outage, cloud: RealCloud, namespace: str, name: str) -> None:
        self.name, self.url = name, outage.hub.tls_url
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.token = cloud.token(namespace, name)

    async def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": "shop/v1"}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.request(method, self.url + path, headers=headers, json=body) as answer,
        ):
            return answer.status, await answer.json()

    async def get(self) -> tuple[int, Any]:
        return await self.ask("GET", f"{self.path}/web")

    async def renew(self, lease: Json, seconds: int = 0) -> tuple[int, Any]:
        """Renew like client-go: send the Lease as last read, with a new time."""
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": 3600,
            "renewTime": f"2026-01-02T03:04:{seconds:02}.000000Z",
        }
        return await self.ask("PUT", f"{self.path}/web", {**lease, "spec": spec})


def reviewed(cloud: RealCloud, mark: int) -> set[str]:
    """Return the users that the cloud has reviewed since."""
    asked = [each for each in cloud.audit(mark) if each.uri.endswith("/selfsubjectreviews")]
    return {each.user for each in asked if each.stage == "ResponseComplete"}


async def elected(outage: Outage, cloud: RealCloud, namespace: str) -> tuple[Pod, Pod, Any]:
    """Elect a leader; return it, a follower and the leader's Lease."""

    def pod(name: str) -> Pod:
        return Pod(outage, cloud, namespace, name)

    leader, follower = await asyncio.to_thread(pod, LEADER), await asyncio.to_thread(pod, FOLLOWER)
    mark = cloud.audit_mark()
    made = {"metadata": {"name": "web"}, "spec": {"holderIdentity": LEADER, "leaseDurationSeconds": 3600}}
    assert (await leader.ask("POST", leader.path, made))[0] == 201
    _, lease = await leader.get()
    # The hub reviews the tokens concurrently with the first requests.
    while len(await asyncio.to_thread(reviewed, cloud, mark)) < 2:
        assert (await follower.get())[0] == 200
        status, lease = await leader.renew(lease, 1)
        assert status == 200
    _, lease = await leader.renew(lease, 1)
    return leader, follower, lease


async def test_a_leader_renews_after_its_hub_was_killed_and_started_offline(
    outage: Outage, real_cloud: RealCloud, namespace: str, rules: None
) -> None:
    """The leader once got 503 in the outage, and so gave up its leadership."""
    leader, follower, lease = await elected(outage, real_cloud, namespace)
    # The hub writes the cloud's reviews of callers asynchronously.
    await asyncio.to_thread(outage.hub.wait_until_stored, '"update","coordination.k8s.io"', 1)
    await asyncio.to_thread(outage.hub.kill)
    outage.link.refuse()
    await asyncio.to_thread(outage.hub.start)
    try:
        for seconds in (2, 3):
            status, lease = await leader.renew(lease, seconds)
            assert status == 200, lease.get("message")
            assert lease["spec"]["renewTime"][17:19] == f"0{seconds}"
        assert (await follower.renew((await follower.get())[1], 4))[0] == 503
    finally:
        await outage.end()
    status, lease = await leader.renew(lease, 5)
    assert status == 200, "the version is that which the cloud gave last"


async def test_the_holder_renews_offline_and_the_cloud_decides_afterwards(
    outage: Outage, real_cloud: RealCloud, namespace: str, rules: None
) -> None:
    leader, follower, lease = await elected(outage, real_cloud, namespace)
    async with outage.away():
        for seconds in (2, 3):
            status, renewed = await leader.renew(lease, seconds)
            assert (status, renewed["spec"]["renewTime"][17:19]) == (200, f"0{seconds}")
            assert renewed["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"]
        status, seen = await follower.get()
        assert status == 200, seen
        assert seen["spec"] == renewed["spec"]
        assert (await follower.renew(seen, 4))[0] == 503
        # A pod on another node acquires the Lease meanwhile.
        path = f"{leader.path}/web"
        taken = await asyncio.to_thread(
            real_cloud.admin.patch, path, {"spec": {"holderIdentity": "elsewhere"}}
        )
        assert (await leader.renew(renewed, 5))[0] == 200

    assert (await leader.renew(renewed, 6))[0] == 409
    assert (await leader.get())[1]["spec"] == taken["spec"]
