"""Sixteen clients of a hub that crashes and restarts on the real control plane: each resumes from its version."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import pytest

from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, nodes_of, service, services, slices
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import Events, Seen, listed, watching

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
SERVICES, SLICES = "services", "endpointslices"


@pytest.mark.parametrize(
    ("is_written", "is_cut"),
    [(True, False), (True, True), (False, False)],
    ids=["written", "without a cloud", "before the last events are written"],
)
async def test_each_client_resumes_after_a_crash(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str, is_written: bool, is_cut: bool
) -> None:
    """Clients get nothing twice, except that those of filtered views get events again that were not yet on disk."""

    @dataclass(frozen=True)
    class Client:
        component: str
        resource: str
        encoding: Encoding = PROTOBUF
        selectors: Mapping[str, str] = field(default_factory=dict, hash=False)

        def path(self, namespace: str) -> str:
            return services(namespace) if self.resource == SERVICES else slices(namespace)

    begin = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

    def watch(hub: Hub, client: Client, version: str = "") -> AbstractAsyncContextManager[Events]:
        query = {**client.selectors, **({"resourceVersion": version} if version else begin)}
        return watching(
            *(hub.url, client.path(namespace)),
            component=client.component,
            encoding=client.encoding,
            headers={},
            allowWatchBookmarks="true",
            **query,
        )

    def repeated(before: Events, after: Events) -> list[str]:
        """Return the events that a client already had; an error counts as one."""
        had = {(each.name, each.object.version) for each in before.seen if each.type != "BOOKMARK"}
        return [
            f"{each.type} {each.name}"
            for each in after.seen
            if each.type == "ERROR" or (each.name, each.object.version) in had
        ]

    here = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}

    def made(cloud: RealCloud, namespace: str, name: str, node: str) -> None:
        """Create a Service that each client gets, its slice, one that filters hide, and one that selectors exclude."""
        admin = cloud.admin
        hidden: Json = service(f"{name}-lb")
        hidden["spec"]["type"] = "LoadBalancer"
        left_out = service(f"{name}-other")
        left_out["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "other"}
        of_headless = endpoint_slice(f"{name}-headless", f"{name}-none", node)
        of_headless["metadata"]["labels"]["service.kubernetes.io/headless"] = ""
        admin.post(services(namespace), service(name, here))
        admin.post(slices(namespace), endpoint_slice(name, name, node, "elsewhere"))
        admin.post(services(namespace), hidden)
        admin.post(services(namespace), left_out)
        admin.post(slices(namespace), of_headless)

    hub, link = linked
    admin = real_cloud.admin
    await asyncio.to_thread(admin.post, "/api/v1/nodes", {"metadata": {"name": hub.node}})
    await asyncio.to_thread(made, real_cloud, namespace, "first", hub.node)
    not_headless = {"labelSelector": "!service.kubernetes.io/headless"}
    no_proxy_name = {"labelSelector": "!service.kubernetes.io/service-proxy-name"}
    clients = (
        # Filtered: two of the filters read other objects.
        Client("kube-proxy", SERVICES),
        Client("kube-proxy", SERVICES, JSON),
        Client("kube-proxy", SERVICES, PROTOBUF, no_proxy_name),
        Client("kubelet", SERVICES, PROTOBUF, {"fieldSelector": "spec.clusterIP!=None"}),
        Client("kube-proxy", SLICES),
        Client("kube-proxy", SLICES, PROTOBUF, not_headless),
        Client("coredns", SLICES, JSON),
        Client("nginx-ingress-controller", SLICES, JSON, not_headless),
        # Not filtered.
        Client("coredns", SERVICES),
        Client("flanneld", SERVICES, JSON),
        Client("flanneld", SERVICES, PROTOBUF, no_proxy_name),
        Client("flanneld", SLICES),
        Client("flanneld", SLICES, JSON, not_headless),
        Client("flanneld", SLICES, PROTOBUF, not_headless),
        Client("coredns", SERVICES, JSON),
        Client("coredns", SERVICES, PROTOBUF, no_proxy_name),
    )
    async with started(hub):
        async with AsyncExitStack() as stack:
            before = [await stack.enter_async_context(watch(hub, each)) for each in clients]
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
                await stack.enter_async_context(watch(hub, each, str(events.seen[-1].object.version)))
                for each, events in zip(clients, before, strict=True)
            ]
            link.carry()
            await asyncio.to_thread(made, real_cloud, namespace, "third", hub.node)
            for events in after:
                await events.until(lambda seen: any(e.type == "ERROR" or e.name == "third" for e in seen))
    again = {
        client: what
        for client, *events in zip(clients, before, after, strict=True)
        if (what := repeated(*events)) and (is_written or any("second" not in each for each in what))
    }
    await asyncio.to_thread(admin.delete, f"/api/v1/nodes/{hub.node}")
    assert not again, f"{len(clients) - len(again)} of {len(clients)} resumed: {list(again.items())}"


async def test_watches_of_slices_get_what_changed_while_the_hub_was_dead(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    """Changes of slices, and of Services that the filter reads."""
    hub, _ = linked
    admin = real_cloud.admin
    key = "openyurt.io/topologyKeys"
    here = {key: "kubernetes.io/hostname"}
    both = [hub.node, "elsewhere"]

    def make() -> None:
        for name, annotated in (("one", here), ("all", {}), ("gone", here)):
            admin.post(services(namespace), service(name, annotated))
            admin.post(slices(namespace), endpoint_slice(name, name, *both))

    def change() -> None:
        admin.patch(f"{services(namespace)}/one", {"metadata": {"annotations": {key: None}}})
        admin.patch(f"{services(namespace)}/all", {"metadata": {"annotations": here}})
        admin.delete(f"{slices(namespace)}/gone")
        admin.post(slices(namespace), endpoint_slice("new", "all", *both))

    def shown(seen: list[Seen]) -> dict[str, list[str]]:
        found = {each.name: each for each in seen if each.type != "BOOKMARK"}
        return {name: nodes_of(each.object) for name, each in found.items() if each.type != "DELETED"}

    def is_after(had: list[Seen], seen: list[Seen]) -> bool:
        return shown([*had, *seen]) == after

    before = {"one": [hub.node], "all": both, "gone": [hub.node]}
    after = {"one": both, "all": [hub.node], "new": [hub.node]}
    path = slices(namespace)
    seen: dict[Encoding, list[Seen]] = {}
    await asyncio.to_thread(make)
    async with started(hub):
        for encoding in (JSON, PROTOBUF):
            async with watching(
                *(hub.url, path),
                component="kube-proxy",
                encoding=encoding,
                sendInitialEvents="true",
                resourceVersionMatch="NotOlderThan",
                allowWatchBookmarks="true",
            ) as events:
                # From the bookmark's version: other objects of the cluster may have been written after the slices.
                seen[encoding] = await events.until(
                    lambda seen: shown(seen) == before and seen[-1].type == "BOOKMARK"
                )
        # One for each source, with the state of its filtered view.
        await asyncio.to_thread(hub.wait_until_stored, '"checkpoints"', len(seen))
        await asyncio.to_thread(hub.kill)
        await asyncio.to_thread(change)
        await asyncio.to_thread(hub.start)
        for encoding, had in seen.items():
            version = str(max(each.object.version for each in had))
            async with watching(
                hub.url, path, component="kube-proxy", encoding=encoding, resourceVersion=version
            ) as events:
                await events.until(partial(is_after, had))
            objects = await listed(hub.url, path, component="kube-proxy", encoding=encoding)
            assert {name: nodes_of(each) for name, each in objects.items()} == after
