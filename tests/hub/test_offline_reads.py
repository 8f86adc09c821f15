"""What is read while the cloud is gone: the table of the design, on the real control plane through a link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.process import SLACK, Hub
from tests.hub.streams import listed

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
NOTICE = 6.0
"""Seconds in which DESIGN wants a black hole noticed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def link_to_cloud(real_cloud: RealCloud) -> Iterator[Link]:
    url = urlsplit(real_cloud.url)
    assert url.hostname is not None
    assert url.port is not None
    with Link(url.hostname, url.port) as link:
        yield link


@pytest.fixture(scope="module")
def hub(
    real_cloud: RealCloud, link_to_cloud: Link, tmp_path_factory: pytest.TempPathFactory, node_name: str
) -> Iterator[Hub]:
    real_cloud.apply(HUB_RBAC)
    server = f"https://{link_to_cloud.host}:{link_to_cloud.port}"
    folder, kubeconfig = tmp_path_factory.mktemp("hub"), real_cloud.node_kubeconfig(node_name)
    with Hub(folder, server, node=node_name, kubeconfig=kubeconfig) as made:
        yield made


async def get(hub: Hub, path: str, accept: str = JSON, component: str = "kubelet") -> Answer:
    headers = {"Accept": accept, "User-Agent": f"{component}/v1", "Accept-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(hub.url + path, headers=headers) as answer,
    ):
        return Answer(answer.status, dict(answer.headers), await answer.read())


@pytest.fixture
async def offline(hub: Hub, link_to_cloud: Link) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Takes the cloud away; it comes back after the test."""

    async def go() -> None:
        await asyncio.to_thread(link_to_cloud.refuse)
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 0, 10)

    yield go
    await asyncio.to_thread(link_to_cloud.carry)
    await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 1, 20)


def service(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"ports": [{"port": 80}]}}


async def test_what_passed_is_answered_again_per_form(
    hub: Hub, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, services, service("one"))
    paths = ["/version", "/api", "/apis", "/api/v1", "/openapi/v3", f"{services}/one", services]
    before = {(path, accept): await get(hub, path, accept) for path in paths for accept in (JSON, PROTOBUF)}
    # kube-apiserver writes /version and /openapi/v3 as JSON only.
    seen = {asked for asked, answer in before.items() if answer.status == 200}
    assert len(seen) >= 12
    await offline()
    for asked in seen:
        after = await get(hub, *asked)
        assert after.status == 200, (asked, after.body)
        assert after.headers["Content-Type"] == before[asked].headers["Content-Type"]
        if not asked[0].startswith(services):
            assert after.body == before[asked].body


async def test_an_object_is_found_in_a_list_and_absence_is_known(
    hub: Hub, real_cloud: RealCloud, namespace: str, offline: Callable[[], Awaitable[None]]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, service("one", app="a"))
    await asyncio.to_thread(real_cloud.admin.post, path, service("two", app="b"))
    await listed(hub.url, "/api/v1/services", component="kube-proxy", resourceVersion="0")
    for _ in range(100):
        if {"one", "two"} <= (
            await listed(hub.url, path, component="kube-proxy", resourceVersion="0")
        ).keys():
            break
    await offline()
    assert (await get(hub, f"{path}/two")).status == 200
    gone = await get(hub, f"{path}/three")
    assert (gone.status, b'"NotFound"' in gone.body) == (404, True)
    # A consistent list, with selectors that nobody used before.
    assert set(await listed(hub.url, path, component="flanneld", labelSelector="app=b")) == {"two"}
    assert set(await listed(hub.url, path, component="flanneld", fieldSelector="metadata.name=one")) == {
        "one"
    }


async def test_what_was_never_seen_is_503_at_once_and_not_retried(
    hub: Hub, offline: Callable[[], Awaitable[None]]
) -> None:
    await offline()
    for path in (
        "/api/v1/namespaces/default/secrets/unknown",
        "/api/v1/persistentvolumes",
        "/api/v1/persistentvolumes?resourceVersion=0",
        "/apis/storage.k8s.io/v1/csinodes/unknown",
    ):
        began = time.monotonic()
        answer = await get(hub, path)
        assert (answer.status, b'"ServiceUnavailable"' in answer.body) == (503, True), path
        assert "Retry-After" not in answer.headers
        assert time.monotonic() - began < SLACK, "it waited for something"


async def test_known_empty_is_empty(hub: Hub, offline: Callable[[], Awaitable[None]]) -> None:
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    before = await listed(hub.url, path, component="kubelet", resourceVersion="0")
    await offline()
    assert before == await listed(hub.url, path, component="kubelet", resourceVersion="0") == {}
    assert await listed(hub.url, path, component="kubelet") == {}


async def test_a_list_in_flight_when_a_black_hole_opens_gets_the_nodes_answer(
    hub: Hub,
    real_cloud: RealCloud,
    link_to_cloud: Link,
    namespace: str,
    offline: Callable[[], Awaitable[None]],
) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    await asyncio.to_thread(real_cloud.admin.post, path, service("one"))
    assert (await get(hub, path)).status == 200
    await asyncio.to_thread(link_to_cloud.black_hole)
    began = time.monotonic()
    answer = await get(hub, f"{path}?timeout=10s")
    assert answer.status == 200
    assert time.monotonic() - began < NOTICE + SLACK
