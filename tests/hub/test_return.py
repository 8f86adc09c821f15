"""A node that comes back from an outage, as the real node lifecycle controller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kube.json_type import Json
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.process import Hub
from tests.hub.support.streams import watching
from tests.hub.test_lease import keep_renewing

NODES = "/api/v1/nodes"
NAME = "node-1"
STRATEGIC = "application/strategic-merge-patch+json"
FLAGS = ["--node-monitor-grace-period=6s", "--node-monitor-period=500ms"]
"""Instead of 50 s and 5 s."""
SATELLITE = 0.3
"""Seconds each way."""
REPORTED = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as kubelet says"}


@pytest.fixture
def cloud(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    """One with a node lifecycle controller."""
    controllers = ["node-lifecycle-controller"]
    with RealCloud(tmp_path / "cloud", cloud_programs, controllers=controllers, manager_flags=FLAGS) as made:
        made.apply(HUB_RBAC)
        yield made


@pytest.fixture
def away(cloud: RealCloud, tmp_path: Path) -> Iterator[Outage]:
    """A hub, on a link that can be taken away."""
    with Link(cloud.host, cloud.port) as link:
        url, kubeconfig = f"https://{link.host}:{link.port}", cloud.node_kubeconfig(NAME)
        with Hub(tmp_path / "hub", url, node=NAME, kubeconfig=kubeconfig, flags=("--wait", "60")) as hub:
            yield Outage(hub, link)


@pytest.mark.parametrize("delay", [0.0, SATELLITE])
async def test_it_is_ready_again_before_its_kubelet_has_looked(
    away: Outage, cloud: RealCloud, delay: float
) -> None:
    """This kubelet renews its Lease, and reports its status but once."""
    await asyncio.to_thread(cloud.admin.post, NODES, {"metadata": {"name": NAME}})
    renewing = asyncio.create_task(keep_renewing(away, NAME))
    patch = {"status": {"conditions": [REPORTED]}}
    path = f"{NODES}/{NAME}"
    told = await away.ask(f"{path}/status", method="PATCH", body=patch, content_type=STRATEGIC)
    assert told.status == 200

    async def sees(condition: Callable[[Json], bool]) -> Json:
        return await asyncio.to_thread(cloud.admin.wait_for, NODES, NAME, condition, timeout=STARTED)

    own = f"metadata.name={NAME}"
    async with watching(away.hub.url, NODES, component="kubelet", fieldSelector=own) as events:
        await events.first("ADDED", NAME)
        await away.begin()
        await sees(lambda node: not is_ready(node))
        away.link.carry(delay=delay)
        back = await sees(is_ready)
        await sees(lambda node: not node["spec"].get("taints"))
    (ready,) = [each for each in back["status"]["conditions"] if each["type"] == "Ready"]
    assert ready["message"] == REPORTED["message"]
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
