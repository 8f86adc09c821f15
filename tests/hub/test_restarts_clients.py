"""Sixteen clients of a hub that crashes and starts again on the real control plane: each resumes from its version."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

import pytest

from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, service, services, slices
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import Events, watching

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
NOT_HEADLESS = {"labelSelector": "!service.kubernetes.io/headless"}
NO_PROXY_NAME = {"labelSelector": "!service.kubernetes.io/service-proxy-name"}
HERE = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}
BEGIN = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
SERVICES, SLICES = "services", "endpointslices"


@dataclass(frozen=True)
class Client:
    component: str
    resource: str
    encoding: Encoding = PROTOBUF
    selectors: Mapping[str, str] = field(default_factory=dict, hash=False)

    def path(self, namespace: str) -> str:
        return services(namespace) if self.resource == SERVICES else slices(namespace)


CLIENTS = (
    # Filtered: two of the filters read other objects.
    Client("kube-proxy", SERVICES),
    Client("kube-proxy", SERVICES, JSON),
    Client("kube-proxy", SERVICES, PROTOBUF, NO_PROXY_NAME),
    Client("kubelet", SERVICES, PROTOBUF, {"fieldSelector": "spec.clusterIP!=None"}),
    Client("kube-proxy", SLICES),
    Client("kube-proxy", SLICES, PROTOBUF, NOT_HEADLESS),
    Client("coredns", SLICES, JSON),
    Client("nginx-ingress-controller", SLICES, JSON, NOT_HEADLESS),
    # Not filtered.
    Client("coredns", SERVICES),
    Client("flanneld", SERVICES, JSON),
    Client("flanneld", SERVICES, PROTOBUF, NO_PROXY_NAME),
    Client("flanneld", SLICES),
    Client("flanneld", SLICES, JSON, NOT_HEADLESS),
    Client("flanneld", SLICES, PROTOBUF, NOT_HEADLESS),
    Client("coredns", SERVICES, JSON),
    Client("coredns", SERVICES, PROTOBUF, NO_PROXY_NAME),
)


def made(cloud: RealCloud, namespace: str, name: str, node: str) -> None:
    """Make a Service that each client sees, its slice, one that filters hide, one that selectors leave out."""
    admin = cloud.admin
    hidden: Json = service(f"{name}-lb")
    hidden["spec"]["type"] = "LoadBalancer"
    left_out = service(f"{name}-other")
    left_out["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "other"}
    of_headless = endpoint_slice(f"{name}-headless", f"{name}-none", node)
    of_headless["metadata"]["labels"]["service.kubernetes.io/headless"] = ""
    admin.post(services(namespace), service(name, HERE))
    admin.post(slices(namespace), endpoint_slice(name, name, node, "elsewhere"))
    admin.post(services(namespace), hidden)
    admin.post(services(namespace), left_out)
    admin.post(slices(namespace), of_headless)


def version_of(events: Events) -> str:
    return str(events.seen[-1].object.version)


def repeated(before: Events, after: Events) -> list[str]:
    """Return what a client got that it had already; an error is one of these."""
    had = {(each.name, each.object.version) for each in before.seen if each.type != "BOOKMARK"}
    return [
        f"{each.type} {each.name}"
        for each in after.seen
        if each.type == "ERROR" or (each.name, each.object.version) in had
    ]


@pytest.mark.parametrize(
    ("is_written", "is_cut"),
    [(True, False), (True, True), (False, False)],
    ids=["written", "without a cloud", "before the last events are written"],
)
async def test_each_client_resumes_after_a_crash(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str, is_written: bool, is_cut: bool
) -> None:
    """Clients get nothing that they have, but for those of filtered views the events that the disk did not get."""
    hub, link = linked
    admin = real_cloud.admin
    await asyncio.to_thread(admin.post, "/api/v1/nodes", {"metadata": {"name": hub.node}})
    await asyncio.to_thread(made, real_cloud, namespace, "first", hub.node)
    async with started(hub):
        async with AsyncExitStack() as stack:
            before = [await stack.enter_async_context(_watch(hub, each, namespace)) for each in CLIENTS]
            for events in before:
                await events.first("ADDED", "first")
            # One for each source with a filtered view.
            await asyncio.to_thread(hub.wait_until_stored, '"checkpoints"', 4)
            await asyncio.to_thread(made, real_cloud, namespace, "second", hub.node)
            for events in before:
                await events.first("ADDED", "second")
            if is_written:
                # The object and its name in the copy's description, in two encodings.
                for name in ("second-other", "second-headless"):
                    await asyncio.to_thread(hub.wait_until_stored, name, 4)
        await asyncio.to_thread(hub.kill)
        if is_cut:
            link.refuse()
        await asyncio.to_thread(hub.start)
        async with AsyncExitStack() as stack:
            after = [
                await stack.enter_async_context(_watch(hub, each, namespace, version_of(events)))
                for each, events in zip(CLIENTS, before, strict=True)
            ]
            link.carry()
            await asyncio.to_thread(made, real_cloud, namespace, "third", hub.node)
            for events in after:
                await events.until(lambda seen: any(e.type == "ERROR" or e.name == "third" for e in seen))
    again = {
        client: what
        for client, *events in zip(CLIENTS, before, after, strict=True)
        if (what := repeated(*events)) and (is_written or any("second" not in each for each in what))
    }
    await asyncio.to_thread(admin.delete, f"/api/v1/nodes/{hub.node}")
    assert not again, f"{len(CLIENTS) - len(again)} of {len(CLIENTS)} resumed: {list(again.items())}"


def _watch(
    hub: Hub, client: Client, namespace: str, version: str = ""
) -> AbstractAsyncContextManager[Events]:
    query = {**client.selectors, **({"resourceVersion": version} if version else BEGIN)}
    return watching(
        *(hub.url, client.path(namespace)),
        component=client.component,
        encoding=client.encoding,
        headers={},
        allowWatchBookmarks="true",
        **query,
    )
