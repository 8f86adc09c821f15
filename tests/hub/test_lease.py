"""Kubelet's lease through the hub and through outages, as the cloud sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cloud.real import RealCloud
from tests.cloud.rest import MERGE_PATCH, STRATEGIC_PATCH, Answer, RestError
from tests.hub.support.outage import Outage

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
APPLY_PATCH = "application/apply-patch+yaml"
DURATION = 4
"""Seconds that a renewal is valid, shorter than kubelet's 40 to keep the tests short."""


def lease(name: str, second: int) -> dict[str, Any]:
    """Return the Lease as kubelet writes it; `second` is its renewTime."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": DURATION,
            "renewTime": f"2026-01-02T03:04:{second:02d}.000000Z",
        },
    }


async def renewed(cloud: RealCloud, name: str) -> str:
    """Return the renewTime that the cloud last got; "" for none."""
    try:
        found = await asyncio.to_thread(cloud.admin.get, f"{LEASES}/{name}")
    except RestError:
        return ""
    when: str = found["spec"]["renewTime"]
    return when


async def until_renewed(cloud: RealCloud, name: str, after: str) -> str:
    for _ in range(300):
        if (when := await renewed(cloud, name)) > after:
            return when
        await asyncio.sleep(0.05)
    raise TimeoutError(f"the lease of {name} is as of {after!r}")


@pytest.fixture
async def fresh(outage: Outage, real_cloud: RealCloud) -> None:
    """Reset: the hub knows of no kubelet, and the cloud of no lease."""
    await asyncio.to_thread(outage.hub.stop)
    await asyncio.to_thread(outage.hub.start)
    if await renewed(real_cloud, outage.hub.node):
        await asyncio.to_thread(real_cloud.admin.delete, f"{LEASES}/{outage.hub.node}")


@pytest.mark.usefixtures("fresh")
async def test_the_hub_renews_the_lease_only_while_kubelet_does(
    outage: Outage, real_cloud: RealCloud
) -> None:
    name = outage.hub.node
    assert (await outage.ask(f"{LEASES}/{name}")).status == 404
    made = await outage.ask(LEASES, method="POST", body=lease(name, 0))
    assert made.status == 201, made.body
    taken = await outage.ask(f"{LEASES}/{name}", method="PUT", body=made.json())
    assert (taken.status, taken.json()) == (200, made.json())
    # After one renewal by kubelet, the hub renews several times.
    first = await until_renewed(real_cloud, name, "2026-01-03")
    await until_renewed(real_cloud, name, first)
    found = await asyncio.to_thread(real_cloud.admin.get, f"{LEASES}/{name}")
    assert found["spec"]["holderIdentity"] == name
    # kubelet stops renewing, so the hub stops, too.
    await asyncio.sleep(DURATION)
    last = await renewed(real_cloud, name)
    renewals = outage.hub.metric("edgehub_lease_renewals_total")
    await asyncio.sleep(DURATION / 2)
    assert (await renewed(real_cloud, name), outage.hub.metric("edgehub_lease_renewals_total")) == (
        last,
        renewals,
    )
    # kubelet reads the lease that it wrote.
    assert (await outage.ask(f"{LEASES}/{name}")).json() == made.json()


@pytest.mark.usefixtures("fresh")
async def test_a_lease_created_offline_is_created_in_the_cloud_after_the_outage(
    outage: Outage, real_cloud: RealCloud
) -> None:
    name = outage.hub.node
    async with outage.away():
        assert (await outage.ask(f"{LEASES}/{name}")).status in (200, 503)
        made = await outage.ask(LEASES, method="POST", body=lease(name, 0))
        for second in range(1, 3):
            taken = await outage.ask(f"{LEASES}/{name}", method="PUT", body=lease(name, second))
            assert (taken.status, taken.json()["spec"]["renewTime"][-10:-8]) == (200, f"{second:02d}")
        renewal = {"spec": lease(name, 3)["spec"]}
        patched = await patch(outage, name, MERGE_PATCH, renewal)
        assert (patched.status, patched.json()["spec"]) == (200, renewal["spec"])
        applied = await patch(outage, f"{name}?fieldManager=test", APPLY_PATCH, lease(name, 4))
        assert applied.status == 503
        assert made.status == 201
        assert await renewed(real_cloud, name) == ""
        renewing = asyncio.create_task(keep_renewing(outage, name))
    try:
        await until_renewed(real_cloud, name, "2026-01-03")
    finally:
        renewing.cancel()


@pytest.mark.usefixtures("fresh")
async def test_patches_are_answered_by_the_hub_and_server_side_apply_by_the_cloud(
    outage: Outage, real_cloud: RealCloud
) -> None:
    name = outage.hub.node
    await outage.ask(LEASES, method="POST", body=lease(name, 0))
    for content_type in (MERGE_PATCH, STRATEGIC_PATCH):
        patched = await patch(
            outage, name, content_type, {"spec": {"renewTime": lease(name, 7)["spec"]["renewTime"]}}
        )
        assert (patched.status, patched.json()["spec"]) == (200, lease(name, 7)["spec"])
    before = (await outage.ask(f"{LEASES}/{name}")).json()
    dry = await patch(outage, f"{name}?dryRun=All", MERGE_PATCH, {"spec": {"holderIdentity": "dry"}})
    assert (dry.status, dry.json()["spec"]["holderIdentity"]) == (200, "dry")
    assert (await outage.ask(f"{LEASES}/{name}")).json() == before
    applied = lease(name, 8)
    applied["metadata"]["labels"] = {"applied": "yes"}
    taken = await patch(outage, f"{name}?fieldManager=test&force=true", APPLY_PATCH, applied)
    assert taken.status == 200, taken.body
    found = await asyncio.to_thread(real_cloud.admin.get, f"{LEASES}/{name}")
    assert found["metadata"]["labels"] == {"applied": "yes"}


async def patch(outage: Outage, name: str, content_type: str, body: dict[str, Any]) -> Answer:
    return await outage.ask(f"{LEASES}/{name}", method="PATCH", body=body, content_type=content_type)


async def keep_renewing(outage: Outage, name: str) -> None:
    """Renew the Lease like kubelet."""
    while True:
        await outage.ask(f"{LEASES}/{name}", method="PUT", body=lease(name, 9))
        await asyncio.sleep(DURATION / 4)
