"""A node whose pods the real node lifecycle controller calls not ready, because it does not hear the node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.wire.encoding import Encoding
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.process import Hub
from tests.hub.test_lease import keep_renewing
from tests.hub.test_local_pods import (
    CONTROLLERS,
    STRATEGIC,
    new_pod,
    path_of,
    reading,
    see,
    shown,
    status,
    tell,
    web,
)
from tests.hub.test_return import FLAGS, NAME, NODES, REPORTED
from tests.hub.test_views import services
from tests.support.background import beside

ALL = [*CONTROLLERS, "node-lifecycle-controller"]
PODS = ("web-0", "web-1")


@pytest.fixture
def site(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[tuple[RealCloud, Outage]]:
    with RealCloud(tmp_path / "cloud", cloud_programs, controllers=ALL, manager_flags=FLAGS) as cloud:
        cloud.apply(HUB_RBAC)
        with Link(cloud.host, cloud.port) as link:
            url, kubeconfig = f"https://{link.host}:{link.port}", cloud.node_kubeconfig(NAME)
            with Hub(tmp_path / "hub", url, node=NAME, kubeconfig=kubeconfig, flags=("--wait", "60")) as hub:
                yield cloud, Outage(hub, link)


async def test_nobody_on_the_node_hears_that_its_pods_were_called_not_ready(
    site: tuple[RealCloud, Outage],
) -> None:
    """In the outage kubelet says of one pod that its address is another, and of the other one nothing."""
    cloud, outage = site
    admin = cloud.admin

    def prepare() -> None:
        admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        admin.post(NODES, {"metadata": {"name": NAME}})
        admin.post(services("default"), web())
        for number, name in enumerate(PODS, 1):
            admin.post(path_of("default"), new_pod(name, NAME))
            admin.patch(f"{path_of('default', name)}/status", status(f"10.1.0.{number}"))

    await asyncio.to_thread(prepare)
    async with beside(keep_renewing(outage, NAME)):
        await _through_an_outage(cloud, outage)


async def _through_an_outage(cloud: RealCloud, outage: Outage) -> None:
    admin, encoding = cloud.admin, Encoding.PROTOBUF
    reported = {"status": {"conditions": [REPORTED]}}
    await outage.ask(f"{NODES}/{NAME}/status", method="PATCH", body=reported, content_type=STRATEGIC)
    before = {"web-0": ("10.1.0.1", True), "web-1": ("10.1.0.2", True)}
    during = before | {"web-0": ("10.2.0.1", True)}

    def is_unready(found: object) -> bool:
        text = str(found)
        return "'ready': True" not in text and "'ready': False" in text

    async with reading(outage, "default", encoding) as events:
        await see(events, before)
        slice_name = events["kube-proxy"].seen[-1].name
        await outage.begin()
        # Without its conditions: kubelet sends those that differ for it.
        moved = status("10.2.0.1", "10.1.0.1")
        del moved["status"]["conditions"]
        await tell(outage, "default", "web-0", moved, encoding)
        await see(events, during)
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        await asyncio.to_thread(admin.wait_for, path, slice_name, is_unready, timeout=STARTED)
        marks = {name: len(each.seen) for name, each in events.items()}

        await outage.end()
        await asyncio.to_thread(outage.hub.wait_for_metric, "edgehub_journal_entries", 0, STARTED)
        # kubelet sees the cloud's word of its pods, and contradicts.
        await events["kubelet"].until(
            lambda seen: [each.name for each in seen[marks["kubelet"] :]].count("web-1") > 0
        )
        for name in PODS:
            await tell(
                outage,
                "default",
                name,
                {"status": {"conditions": status("")["status"]["conditions"]}},
                encoding,
            )
        await tell(outage, "default", "web-1", status("10.3.0.2", "10.1.0.2"), encoding)
        last = during | {"web-1": ("10.3.0.2", True)}
        await see(events, last)
        for name in ("kube-proxy", "coredns"):
            assert shown(events[name].seen[marks[name] - 1 :]) == [during, last]
