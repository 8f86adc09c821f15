"""Nodes that get a hub, by the name of the label and by their NodePool, which may be deleted; on a virtual clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.cluster.kinds import NODES, read_node
from controllers.nodes.conversion import PHASE, Direction, Phase, Stage
from controllers.nodes.node_controller import LEASES, NodesController
from controllers.runtime.controller import Context
from controllers.settings import Settings
from kube.fleet import ANNOTATION, HubStatus
from kube.requests.node_pools import NODEPOOL_TYPE, POOL_LABEL
from tests.controllers.support.pretended import PretendedCluster, working

pytestmark = [pytest.mark.looptime]
EDGE_WORKER = "openyurt.io/is-edge-worker"


def put_node(cluster: PretendedCluster, stage: Stage | None, label: str = EDGE_WORKER) -> None:
    now = datetime.now(UTC)
    annotations = {PHASE: str(Phase(Direction.INSTALL, stage, now, now))} if stage is not None else {}
    labels = {POOL_LABEL: "hz", label: "true"}
    conditions = [{"type": "Ready", "status": "True"}]
    meta = {"name": "n1", "labels": labels, "annotations": annotations}
    cluster.put(NODES.type, {"metadata": meta, "status": {"conditions": conditions}})


def put_lease(cluster: PretendedCluster) -> None:
    """Let the node's hub report that it is healthy."""
    meta = {
        "name": "n1",
        "namespace": "kube-node-lease",
        "annotations": {ANNOTATION: HubStatus("0.3.0").dump()},
    }
    cluster.put(LEASES, {"metadata": meta, "spec": {}}, watched="kube-node-lease")


@pytest.mark.parametrize(
    ("stage", "reason"), [(Stage.CHECK, "Installed"), (None, "")], ids=["under way", "not begun"]
)
async def test_a_round_ends_without_its_pool_and_none_begins(stage: Stage | None, reason: str) -> None:
    cluster = PretendedCluster()
    cluster.put(NODEPOOL_TYPE, {"metadata": {"name": "hz"}, "spec": {}, "status": {}})
    async with working(cluster, NodesController):
        put_node(cluster, stage)
        cluster.delete(NODEPOOL_TYPE, "hz")
        await asyncio.sleep(60)
        put_lease(cluster)
        await asyncio.sleep(60)
    assert await condition_reason(cluster) == reason


@pytest.mark.parametrize(("label", "reason"), [(EDGE_WORKER, ""), ("example.com/edge", "Installing")])
async def test_the_label_has_the_name_that_the_option_gives(label: str, reason: str) -> None:
    def make(context: Context) -> NodesController:
        settings = Settings(edge_worker_label="example.com/edge")
        return NodesController(replace(context, settings=settings))

    cluster = PretendedCluster()
    cluster.put(NODEPOOL_TYPE, {"metadata": {"name": "hz"}, "spec": {}, "status": {}})
    async with working(cluster, make):
        put_node(cluster, None, label)
        await asyncio.sleep(60)
    assert await condition_reason(cluster) == reason


async def condition_reason(cluster: PretendedCluster) -> str:
    found = await cluster.request("GET", NODES.type.path("", "n1"))
    return read_node(found.found(dict[str, Any])).hub[1]
