"""Topology on the real control plane: each input's change reaches open watches of both encodings, once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from addons.inputs.filter_chain import TRIGGERS
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.fixtures import HUB_NODES
from tests.cloud.kube_proxy import KubeProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.hub.support.node_pools import POOL_CRD, POOLS
from tests.hub.support.objects import endpoint_slice, nodes_of, services, slices
from tests.hub.support.process import Hub
from tests.hub.support.settled import caught_up
from tests.hub.support.site import hub_before
from tests.hub.support.streams import Events, Seen, watching
from tests.support.server_thread import Answering, HttpServer


class HealthService(HttpServer):
    """The site's local health server, which names unhealthy nodes."""

    def __init__(self) -> None:
        self.unhealthy: tuple[str, ...] = ()
        health = self

        class Handler(Answering):
            def respond(self) -> None:
                self.answer(json.dumps({name: {"normal": False} for name in health.unhealthy}).encode())

        super().__init__(Handler)
        self.url += "/localinfo"


NODES = "/api/v1/nodes"
NEAR, FAR = "topology-near", "topology-far"
"""Two other nodes, recreated for each test."""


@pytest.fixture(scope="module")
def health() -> Iterator[HealthService]:
    with HealthService() as made:
        yield made


@pytest.fixture(scope="module")
def cloud_link(real_cloud: RealCloud) -> Iterator[Link]:
    with Link(real_cloud.host, real_cloud.port) as made:
        yield made


@pytest.fixture(scope="module")
def hub(
    real_cloud: RealCloud,
    cloud_link: Link,
    health: HealthService,
    tmp_path_factory: pytest.TempPathFactory,
    node_name: str,
) -> Iterator[Hub]:
    """Run a hub with every topology option, behind a link that can be cut."""
    real_cloud.apply(HUB_NODES)
    real_cloud.apply(POOL_CRD)
    flags = (
        *("--local-health", health.url, "--local-health-interval", "1"),
        *("--local-endpoint", "169.254.20.11,fd00::11", "--local-port", "51003"),
    )
    folder = tmp_path_factory.mktemp("hub")
    with hub_before(real_cloud, folder, node_name, *flags, link=cloud_link) as made:
        yield made


@pytest.fixture
def populated(real_cloud: RealCloud, hub: Hub, namespace: str) -> Iterator[str]:
    """Create a namespace with Service web and its slice on three nodes: this one and another in zone a, one in zone
    b."""
    admin = real_cloud.admin
    for name, zone in ((hub.node, "a"), (NEAR, "a"), (FAR, "b")):
        admin.post(NODES, {"metadata": {"name": name, "labels": {"zone": zone}}})
    ports = [{"name": "http", "port": 80}]
    for name in ("web", "db"):
        admin.post(services(namespace), {"metadata": {"name": name}, "spec": {"ports": ports}})
        admin.post(slices(namespace), endpoint_slice(f"{name}-1", name, hub.node, NEAR, FAR))
    yield namespace
    for name in (hub.node, NEAR, FAR):
        admin.request("DELETE", f"{NODES}/{name}")
    admin.request("DELETE", f"{POOLS}/p1")


class Watches:
    """Open watches of a namespace's slices, one per encoding."""

    def __init__(self, cloud: RealCloud, populated: str, opened: list[Events]) -> None:
        self._cloud = cloud
        self._namespace = populated
        self.opened = opened
        self._fences = 0

    async def see(self, change: Callable[[], object], **expected: list[str]) -> None:
        """Make a change; check that each watch gets exactly one event for each expected slice, and none for other
        slices."""
        marks = [len(each.seen) for each in self.opened]
        await asyncio.to_thread(change)
        changed = {name.replace("_", "-"): nodes for name, nodes in expected.items()}
        for events, mark in zip(self.opened, marks, strict=True):
            await events.until(lambda seen, mark=mark: changed.keys() <= _names(seen[mark:]).keys())  # type: ignore[misc]  # the default binds the loop's value
        # Late or repeated events arrive before the fence, which is written last.
        self._fences += 1
        fence = f"fence-{self._fences}"
        await asyncio.to_thread(
            self._cloud.admin.post, slices(self._namespace), endpoint_slice(fence, "none")
        )
        for events, mark in zip(self.opened, marks, strict=True):
            await events.first("ADDED", fence)
            news = [each for each in events.seen[mark:] if each.name not in ("", fence)]
            assert _names(news) == Counter(changed.keys())
            for each in news:
                assert each.type == "MODIFIED"
                assert nodes_of(each.object) == changed[each.name]


def _names(seen: list[Seen]) -> Counter[str]:
    return Counter(each.name for each in seen if each.type != "BOOKMARK")


@asynccontextmanager
async def watches(cloud: RealCloud, hub: Hub, populated: str, **first: list[str]) -> AsyncIterator[Watches]:
    """Open watches, and wait until they have settled in this state (by default db-1 with all endpoints). A watch may
    start before the hub knows each input of its filters; later inputs then cause more events."""
    expected = {
        "db-1": [hub.node, NEAR, FAR],
        **{name.replace("_", "-"): nodes for name, nodes in first.items()},
    }
    async with AsyncExitStack() as stack:
        opened = []
        for encoding in Encoding:
            watch = watching(
                *(hub.url, slices(populated)),
                component="kube-proxy",
                encoding=encoding,
                resourceVersion="0",
                allowWatchBookmarks="true",
            )
            opened.append(await stack.enter_async_context(watch))
        await asyncio.to_thread(caught_up, cloud, hub)
        for events in opened:
            await events.until(lambda seen: _state(seen) == expected)
        yield Watches(cloud, populated, opened)


def _state(seen: list[Seen]) -> dict[str, list[str]]:
    """Return each slice's nodes by its last event."""
    return {each.name: nodes_of(each.object) for each in seen if each.type != "BOOKMARK"}


def annotate(cloud: RealCloud, path: str, **annotations: str | None) -> Callable[[], Json]:
    names = {name.replace("__", "/"): value for name, value in annotations.items()}
    return lambda: cloud.admin.patch(path, {"metadata": {"annotations": names}})


def label(cloud: RealCloud, node: str, **labels: str | None) -> Callable[[], Json]:
    names = {name.replace("__", "/"): value for name, value in labels.items()}
    return lambda: cloud.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": names}})


def web(populated: str) -> str:
    return f"{services(populated)}/web"


async def test_changes_of_services_and_node_labels_reach_open_watches(
    real_cloud: RealCloud, hub: Hub, populated: str
) -> None:
    everybody = [hub.node, NEAR, FAR]
    async with watches(real_cloud, hub, populated, web_1=everybody) as seen:
        await seen.see(annotate(real_cloud, web(populated), topologyKeys='["zone"]'), web_1=[hub.node, NEAR])
        await seen.see(annotate(real_cloud, web(populated), unrelated="x"))
        # OpenYurt's controller writes this trigger to have slices filtered again: only unfiltered watches get an event.
        await seen.see(annotate(real_cloud, slices(populated, "web-1"), **{TRIGGERS[0]: "1"}))
        await seen.see(label(real_cloud, hub.node, unrelated="x"))
        await seen.see(label(real_cloud, hub.node, zone="b"), web_1=[hub.node, FAR])
        await seen.see(label(real_cloud, NEAR, zone="b"), web_1=everybody)
        await seen.see(label(real_cloud, FAR, zone=None), web_1=[hub.node, NEAR])
        scope = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}
        patch = {"metadata": {"annotations": scope}}
        await seen.see(lambda: real_cloud.admin.patch(web(populated), patch), web_1=[hub.node])
        away = {"metadata": {"annotations": dict.fromkeys(scope)}}
        await seen.see(lambda: real_cloud.admin.patch(web(populated), away), web_1=[hub.node, NEAR])
        await seen.see(lambda: real_cloud.admin.delete(f"{NODES}/{NEAR}"), web_1=[hub.node])
        await seen.see(lambda: real_cloud.admin.delete(web(populated)), web_1=everybody)
        again = {
            "metadata": {"name": "web", "annotations": {"topologyKeys": '["zone"]'}},
            "spec": {"ports": [{"port": 80}]},
        }
        await seen.see(lambda: real_cloud.admin.post(services(populated), again), web_1=[hub.node])


async def test_changes_of_pools_reach_open_watches(real_cloud: RealCloud, hub: Hub, populated: str) -> None:
    admin = real_cloud.admin
    patch = {"metadata": {"annotations": {"openyurt.io/topologyKeys": "openyurt.io/nodepool"}}}
    everybody = [hub.node, NEAR, FAR]

    def status(*nodes: str) -> Callable[[], Json]:
        return lambda: admin.patch(f"{POOLS}/p1/status", {"status": {"nodes": list(nodes)}})

    def create() -> None:
        pool = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool"}
        admin.post(POOLS, {**pool, "metadata": {"name": "p1"}, "spec": {"type": "Edge"}})

    async with watches(real_cloud, hub, populated, web_1=everybody) as seen:
        # Without a pool, or with a nonexistent one, nothing is filtered.
        await seen.see(lambda: admin.patch(web(populated), patch))
        own = {"metadata": {"labels": {"apps.openyurt.io/nodepool": "p1"}}}
        await seen.see(lambda: admin.patch(f"{NODES}/{hub.node}", own))
        # A pool without a status filters nothing; one with an empty status has the node, by its label.
        await seen.see(create)
        counted = {"status": {"readyNodeNum": 0, "unreadyNodeNum": 0}}
        await seen.see(lambda: admin.patch(f"{POOLS}/p1/status", counted), web_1=[hub.node])
        await seen.see(status(NEAR), web_1=[hub.node, NEAR])
        await seen.see(status(hub.node, NEAR))
        await seen.see(status(hub.node, NEAR, "somebody"))
        await seen.see(status(hub.node, FAR), web_1=[hub.node, FAR])
        await seen.see(lambda: admin.delete(f"{POOLS}/p1"), web_1=everybody)


async def test_changes_of_local_health_reach_open_watches_online_and_offline(
    real_cloud: RealCloud, hub: Hub, populated: str, health: HealthService, cloud_link: Link
) -> None:
    everybody = [hub.node, NEAR, FAR]

    def say(*unhealthy: str) -> None:
        health.unhealthy = unhealthy

    async with watches(real_cloud, hub, populated, web_1=everybody) as seen:
        marks = [len(each.seen) for each in seen.opened]
        cloud_link.refuse()
        try:
            for count, (unhealthy, left) in enumerate(
                [((NEAR,), [hub.node, FAR]), ((NEAR, FAR), [hub.node]), ((), everybody)], 1
            ):
                say(*unhealthy)
                # Services with and without a topology are treated equally.
                expected = {"web-1": left, "db-1": left}
                for events, mark in zip(seen.opened, marks, strict=True):
                    await events.until(lambda seen, expected=expected: _state(seen) == expected)  # type: ignore[misc]  # the default binds the loop's value
                    assert _names(events.seen[mark:]) == Counter({"web-1": count, "db-1": count})
            assert await asyncio.to_thread(hub.metric, "edgehub_local_health_up") == 1
        finally:
            say()
            cloud_link.carry()


def test_superedges_wrapper_works_unchanged_with_kube_proxy(
    real_cloud: RealCloud, hub: Hub, populated: str, cloud_programs: dict[str, Path], tmp_path: Path
) -> None:
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "10.9.8.7"}]}}
    real_cloud.admin.patch(f"{NODES}/{hub.node}/status", address)
    annotate(real_cloud, web(populated), topologyKeys='["zone"]')()
    kubeconfig = write_kubeconfig(tmp_path / "kube-proxy.kubeconfig", hub.url)
    port = f"{populated}/web:http"
    with KubeProxy(hub.node, kubeconfig, tmp_path, cloud_programs) as proxy:
        proxy.wait_synced()
        proxy.wait_endpoints(port, {"10.1.0.1:8080", "10.1.0.2:8080"})
        label(real_cloud, hub.node, zone="b")()
        proxy.wait_endpoints(port, {"10.1.0.1:8080", "10.1.0.3:8080"})
        label(real_cloud, FAR, zone="c")()
        proxy.wait_endpoints(port, {"10.1.0.1:8080"})
        real_cloud.admin.delete(web(populated))
        with RestClient(hub.url, user_agent="kube-proxy/v1") as client:
            assert client.get(f"{NODES}/{hub.node}")["metadata"]["name"] == hub.node
            event = {
                "metadata": {"name": "from-kube-proxy", "namespace": "default"},
                "involvedObject": {"kind": "Node", "name": hub.node, "namespace": "default"},
                "reason": "Starting",
                "type": "Normal",
                "source": {"component": "kube-proxy"},
            }
            client.post("/api/v1/namespaces/default/events", event)
    found = real_cloud.admin.get("/api/v1/namespaces/default/events/from-kube-proxy")
    assert found["reason"] == "Starting"
