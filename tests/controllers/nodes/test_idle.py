"""Nodes in their desired state: the manager's requests and writes, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from controllers.cluster.kinds import NODES
from controllers.nodes.node_controller import LEASES, NodesController
from kube.fleet import ANNOTATION, HubStatus
from kube.http.client import ApiResponse
from kube.requests.node_pools import NODEPOOL_TYPE, POOL_LABEL
from tests.controllers.support.pretended import PretendedCluster, working
from tests.kube.support.answering import Asked

pytestmark = [pytest.mark.looptime]
HEARTBEAT = 10.0
"""Seconds between two reports of a kubelet."""
REPORTS = 60
LEASE_LISTS = LEASES.path("kube-node-lease")


class CountingCluster(PretendedCluster):
    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[tuple[str, str]] = Counter()
        """Requests by method and path."""

    async def answer(self, asked: Asked) -> ApiResponse:
        self.requests[asked.method, asked.path] += 1
        return await super().answer(asked)


async def idle(version: str) -> CountingCluster:
    """Return the cluster after ten minutes of kubelets' reports, with a pool that desires a version; "" for any."""

    def put_node(number: int) -> None:
        now = datetime.now(UTC)
        conditions = [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": str(now)},
            {"type": "HubInstalled", "status": "True", "reason": "Installed", "message": ""},
        ]
        meta = {
            "name": f"n{number}",
            "labels": {POOL_LABEL: "hz", "openyurt.io/is-edge-worker": "true"},
            "annotations": {"edgehub.io/hub-phase": "install/done 2026-01-02T12:00:00Z 2026-01-02T12:00:00Z"},
        }
        cluster.put(NODES.type, {"metadata": meta, "status": {"conditions": conditions}})

    cluster = CountingCluster()
    annotations = {"edgehub.io/hub-version": version} if version else {}
    cluster.put(
        NODEPOOL_TYPE, {"metadata": {"name": "hz", "annotations": annotations}, "spec": {}, "status": {}}
    )
    for number in range(3):
        put_node(number)
        meta = {
            "name": f"n{number}",
            "namespace": "kube-node-lease",
            "annotations": {ANNOTATION: HubStatus("0.3.0").dump()},
        }
        renewed = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        cluster.put(LEASES, {"metadata": meta, "spec": {"renewTime": renewed}}, watched="kube-node-lease")
    async with working(cluster, NodesController):
        for _ in range(REPORTS):
            await asyncio.sleep(HEARTBEAT)
            for number in range(3):
                put_node(number)
    return cluster


async def test_a_completed_rollout_causes_no_writes_or_requests() -> None:
    """Each write would be sent to hubs. The manager reads Leases only where a Node or the pool has changed."""
    without, beside = await idle(""), await idle("0.3.0")
    (written,) = beside.patched
    assert written == "status", "the pool's progress, once"
    assert without.patched == beside.patched
    assert beside.requests - without.requests == Counter({("GET", LEASE_LISTS): 2}), "first, and then"
    assert sum(beside.requests.values()) < REPORTS
