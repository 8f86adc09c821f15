"""A node returns from an outage in which the real node lifecycle controller marked it and its pods as not ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.hollow import is_ready
from tests.cloud.real import RealCloud
from tests.hub.support.objects import services, slices
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.site import controlled_site
from tests.hub.support.streams import watching
from tests.hub.test_lease import keep_renewing
from tests.hub.test_local_pods import (
    CONTROLLERS,
    STRATEGIC,
    new_pod,
    patch_status,
    path_of,
    reading,
    see,
    shown,
    status,
    web,
)
from tests.support.background import beside

NODES = "/api/v1/nodes"
ALL = [*CONTROLLERS, "node-lifecycle-controller"]
FLAGS = ["--node-monitor-grace-period=6s", "--node-monitor-period=500ms"]
"""Flags of kube-controller-manager: shorter times than 50 s and 5 s."""
SATELLITE = 0.3
"""Seconds of delay in each direction."""
REPORTED = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as kubelet says"}
PODS = ("web-0", "web-1")


@pytest.fixture
def site(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[tuple[RealCloud, Outage]]:
    with controlled_site(tmp_path, cloud_programs, ALL, FLAGS) as made:
        yield made


@pytest.mark.parametrize("delay", [0.0, SATELLITE])
async def test_after_an_outage_the_node_is_ready_at_once_and_no_pod_appears_unready(
    site: tuple[RealCloud, Outage], delay: float
) -> None:
    """This kubelet renews its Lease, and reports its status only once. In the outage it reports a new address for one
    pod, and nothing for the other one."""
    cloud, outage = site
    admin = cloud.admin

    def prepare() -> None:
        admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        admin.post(NODES, {"metadata": {"name": outage.hub.node}})
        admin.post(services("default"), web())
        for number, name in enumerate(PODS, 1):
            admin.post(path_of("default"), new_pod(name, outage.hub.node))
            admin.patch(f"{path_of('default', name)}/status", status(f"10.1.0.{number}"))

    await asyncio.to_thread(prepare)
    async with beside(keep_renewing(outage, outage.hub.node)):
        await _through_an_outage(cloud, outage, delay)


async def _through_an_outage(cloud: RealCloud, outage: Outage, delay: float) -> None:
    encoding, node = Encoding.PROTOBUF, outage.hub.node
    reported = {"status": {"conditions": [REPORTED]}}
    await outage.ask(f"{NODES}/{node}/status", method="PATCH", body=reported, content_type=STRATEGIC)
    before = {"web-0": ("10.1.0.1", True), "web-1": ("10.1.0.2", True)}
    during = before | {"web-0": ("10.2.0.1", True)}

    async def sees(path: str, name: str, condition: Callable[[Json], bool]) -> Json:
        return await asyncio.to_thread(cloud.admin.wait_for, path, name, condition, timeout=STARTED)

    def is_unready(found: object) -> bool:
        text = str(found)
        return "'ready': True" not in text and "'ready': False" in text

    own, url = f"metadata.name={node}", outage.hub.url
    async with (
        reading(outage, "default", encoding) as events,
        watching(url, NODES, component="kubelet", fieldSelector=own) as of_node,
    ):
        await of_node.first("ADDED", node)
        await see(events, before)
        slice_name = events["kube-proxy"].seen[-1].name
        await outage.begin()
        # Without conditions: kubelet sends only those that it considers changed.
        moved = status("10.2.0.1", "10.1.0.1")
        del moved["status"]["conditions"]
        await patch_status(outage, "default", "web-0", moved, encoding)
        await see(events, during)
        await sees(slices("default"), slice_name, is_unready)
        marks = {name: len(each.seen) for name, each in events.items()}

        outage.link.carry(delay=delay)
        back = await sees(NODES, node, is_ready)
        await sees(NODES, node, lambda found: not found["spec"].get("taints"))
        (ready,) = [each for each in back["status"]["conditions"] if each["type"] == "Ready"]
        assert ready["message"] == REPORTED["message"]
        await asyncio.to_thread(outage.hub.wait_for_metric, "edgehub_journal_entries", 0, STARTED)
        # kubelet sees the cloud's status of its pods, and contradicts it.
        await events["kubelet"].until(
            lambda seen: [each.name for each in seen[marks["kubelet"] :]].count("web-1") > 0
        )
        contradiction = {"status": {"conditions": status("")["status"]["conditions"]}}
        for name in PODS:
            await patch_status(outage, "default", name, contradiction, encoding)
        await patch_status(outage, "default", "web-1", status("10.3.0.2", "10.1.0.2"), encoding)
        last = during | {"web-1": ("10.3.0.2", True)}
        await see(events, last)
        for name in ("kube-proxy", "coredns"):
            assert shown(events[name].seen[marks[name] - 1 :]) == [during, last]
