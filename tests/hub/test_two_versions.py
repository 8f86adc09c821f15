"""Hubs of this version and of earlier ones: upgrade and downgrade of a state folder, and a pool with both versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.checkouts import RELEASED, checked_out
from tests.hub.support.objects import endpoint_slice, service, services
from tests.hub.support.outage import Outage
from tests.hub.support.pool_scene import assert_uninterrupted, followed, leads
from tests.hub.support.pool_site import SLICES, Member, Site
from tests.hub.support.process import ROOT, Hub
from tests.hub.test_local_pods import CONTROLLERS, new_pod, patch_status, path_of, reading, see, status, web
from tests.hub.test_older_folders import shown, status_of
from tests.support.polling import eventually


@pytest.fixture(scope="module", params=RELEASED)
def version(request: pytest.FixtureRequest) -> str:
    """Return the name of an earlier version."""
    return str(request.param)


@pytest.fixture(scope="module")
def former(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of that version."""
    return checked_out(version, tmp_path_factory.mktemp("former"))


async def test_a_state_folder_is_upgraded_and_downgraded_in_an_outage(
    version: str, former: Path, cloud: ScriptableCloud, tmp_path: Path
) -> None:
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mounted"}},
        {"apiVersion": "v1", "kind": "Service", **service("web", {})},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            **endpoint_slice("web-1", "web", "n1"),
        },
    ]
    for made in objects:
        made["metadata"]["namespace"] = "default"
        cloud.store.create(made)
    hub = Hub(tmp_path, cloud.url)
    expected = {"web-1": ["n1"]}
    hub.use(former)
    await asyncio.to_thread(hub.start)
    secret = "/api/v1/namespaces/default/secrets/mounted"
    # Versions that cannot load the copies of single objects written by this one, and read them again from the cloud.
    gets_of_older_format = frozenset({"0.1.0"})
    try:
        assert await shown(hub, Encoding.PROTOBUF) == expected
        assert await status_of(hub, secret) == 200
        await asyncio.to_thread(hub.wait_until_stored, "mounted", 1)
        await cloud.stop()
        for checkout in (ROOT, former, ROOT):
            await asyncio.to_thread(hub.stop)
            hub.use(checkout)
            await asyncio.to_thread(hub.start)
            assert await shown(hub, Encoding.PROTOBUF) == expected, checkout
            is_lost = checkout is former and version in gets_of_older_format
            assert await status_of(hub, secret) == (503 if is_lost else 200), checkout
    finally:
        await asyncio.to_thread(hub.stop)


@pytest.fixture
def mixed(
    version: str, former: Path, cloud_programs: dict[str, Path], tmp_path: Path
) -> Iterator[tuple[Site, Member, Member]]:
    """Run a pool with a hub of the earlier version and one of this version, with a cloud that has the endpoint
    controllers."""
    with RealCloud(tmp_path / "cloud", cloud_programs, controllers=CONTROLLERS) as cloud:
        site = Site(cloud, tmp_path, "mixed", 60 + list(RELEASED).index(version))
        site.prepare(1, 2)
        old, new = site.members
        old.hub.use(former)
        site.configure({"hubs": ",".join(f"{each.name}/{each.address}" for each in site.members)})
        try:
            site.start()
            yield site, old, new
        finally:
            site.close()


@pytest.mark.real
async def test_hubs_of_two_versions_lead_each_other(mixed: tuple[Site, Member, Member]) -> None:
    """The follower has no cloud, so each change that its client gets came from the leader's peer port."""

    def reads_from(follower: Member, leader: Member) -> bool:
        return follower.server(SLICES) == leader.name

    def follows(follower: Member, leader: Member) -> bool:
        return [each["node"] for each in follower.pool()["follows"]] == [leader.name]

    site, old, new = mixed
    for leader, follower in ((old, new), (new, old)):
        await asyncio.to_thread(site.lead, leader)
        await asyncio.to_thread(eventually, partial(leads, leader), "it leads")
        await asyncio.to_thread(eventually, partial(follows, follower, leader), "it follows")
        async with followed(site, follower) as (events, make):
            await asyncio.to_thread(eventually, partial(reads_from, follower, leader), "it reads there")
            follower.link.refuse()
            for _ in range(5):
                await events.first("ADDED", await asyncio.to_thread(make))
            assert_uninterrupted(events)
            faults = partial(follower.hub.metric, "edgehub_source_errors_total", reason="difference")
            assert not await asyncio.to_thread(faults)
            follower.link.carry()


@pytest.mark.real
async def test_hubs_of_two_versions_exchange_pod_reports_in_an_outage(
    version: str, mixed: tuple[Site, Member, Member]
) -> None:
    """If the other version sends no reports, a hub continues with the pods of its own node."""
    site, encoding = mixed[0], Encoding.PROTOBUF
    admin, namespace = site.cloud.admin, "default"
    account = {"metadata": {"name": "default"}}
    await asyncio.to_thread(admin.post, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    await asyncio.to_thread(admin.post, services(namespace), web())
    nodes = [Outage(each.hub, each.link) for each in site.members]
    for number, node in enumerate(nodes):
        pod = f"web-{number}"
        await asyncio.to_thread(admin.post, path_of(namespace), new_pod(pod, node.hub.node))
        await asyncio.to_thread(admin.patch, path_of(namespace, pod) + "/status", status(f"10.1.0.{number}"))
    before = {f"web-{number}": (f"10.1.0.{number}", True) for number in range(2)}
    after = {f"web-{number}": (f"10.2.0.{number}", True) for number in range(2)}
    # Versions whose hubs do not apply kubelets' reports to endpoints, and send other hubs none.
    without_reports = frozenset({"0.1.0"})
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(reading(node, namespace, encoding)) for node in nodes]
        for events in clients:
            await see(events, before)
        await asyncio.gather(*(node.begin() for node in nodes))
        for number, node in enumerate(nodes):
            changed = status(f"10.2.0.{number}", f"10.1.0.{number}")
            await patch_status(node, namespace, f"web-{number}", changed, encoding)
        if version in without_reports:
            await see(clients[1], before | {"web-1": after["web-1"]})
        else:
            for events in clients:
                await see(events, after)
        await asyncio.gather(*(node.end() for node in nodes))
        for events in clients:
            await see(events, after)
