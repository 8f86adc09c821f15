"""A site without its cloud: the hubs of a pool exchange their kubelets' pod statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.hub.support.objects import services, slices
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.pool_site import Site, talking_site
from tests.hub.test_local_pods import (
    CONTROLLERS,
    cloud_has,
    new_pod,
    patch_status,
    path_of,
    reading,
    see,
    shown,
    status,
    web,
)
from tests.support.polling import eventually


@pytest.fixture
def site(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[Site]:
    """Run three nodes without a leader, with a cloud that has the endpoint controllers."""
    with (
        RealCloud(tmp_path / "cloud", cloud_programs, controllers=CONTROLLERS) as cloud,
        talking_site(cloud, tmp_path, 41, 3) as made,
    ):
        yield made


async def test_endpoints_of_a_site_follow_its_kubelets_through_an_outage(site: Site) -> None:
    def no_neighbours(site: Site) -> bool:
        return not any(each.pool()["neighbours"] for each in site.members)

    admin, encoding = site.cloud.admin, Encoding.PROTOBUF
    account = {"metadata": {"name": "default"}}
    namespace = "default"
    await asyncio.to_thread(admin.post, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    await asyncio.to_thread(admin.post, services(namespace), web())
    nodes = [Outage(each.hub, each.link) for each in site.members]
    first, second, third = nodes
    for number, node in enumerate(nodes):
        pod = f"web-{number}"
        await asyncio.to_thread(admin.post, path_of(namespace), new_pod(pod, node.hub.node))
        await asyncio.to_thread(admin.patch, f"{path_of(namespace, pod)}/status", status(f"10.1.0.{number}"))
    before = {f"web-{number}": (f"10.1.0.{number}", True) for number in range(3)}

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(reading(node, namespace, encoding)) for node in nodes]
        for events in clients:
            await see(events, before)
        assert no_neighbours(site), "there is a cloud"
        await asyncio.gather(*(node.begin() for node in nodes))
        # A pod restarts on its node, and another one on another node, which is not ready at first.
        await patch_status(first, namespace, "web-0", status("10.2.0.0", "10.1.0.0"), encoding)
        await patch_status(second, namespace, "web-1", status("10.2.0.1", "10.1.0.1", ready=False), encoding)
        after = before | {"web-0": ("10.2.0.0", True), "web-1": ("10.2.0.1", False)}
        for events in clients:
            await see(events, after)
        asked = "component=kube-proxy&resource=endpointslices&namespace=default&name="
        name = clients[2]["kube-proxy"].seen[-1].name
        said = await asyncio.to_thread(third.hub.admin, f"/debug/explain?{asked}{name}")
        assert f"10.2.0.0 changed: by node {first.hub.node}'s kubelet, since " in said, said

        # A silent hub removes nothing, and a restarted hub reports the same.
        await asyncio.to_thread(first.hub.kill)
        await patch_status(second, namespace, "web-1", status("10.2.0.1"), encoding)
        after["web-1"] = ("10.2.0.1", True)
        for events in clients[1:]:
            await see(events, after)
        await asyncio.to_thread(first.hub.start)
        again = await stack.enter_async_context(reading(first, namespace, encoding))
        await see(again, after)
        await patch_status(first, namespace, "web-0", status("10.2.1.0", "10.2.0.0"), encoding)
        after["web-0"] = ("10.2.1.0", True)
        clients[0] = again
        for events in clients:
            await see(events, after)
        marks = [{kind: len(each.seen) for kind, each in events.items()} for events in clients]

        await asyncio.gather(*(node.end() for node in nodes))
        for node in nodes:
            await asyncio.to_thread(node.hub.wait_for_metric, "edgehub_journal_entries", 0, STARTED)
        await asyncio.to_thread(
            admin.wait_for, slices(namespace), name, partial(cloud_has, after), timeout=STARTED
        )
        # A later report of a kubelet arrives with all earlier ones.
        await patch_status(second, namespace, "web-1", status("10.3.0.1", "10.2.0.1"), encoding)
        last = after | {"web-1": ("10.3.0.1", True)}
        for events, mark in zip(clients, marks, strict=True):
            await see(events, last)
            for kind in ("kube-proxy", "coredns"):
                assert shown(events[kind].seen[mark[kind] - 1 :]) == [after, last]
    await asyncio.to_thread(eventually, partial(no_neighbours, site), "nobody asks any more")
