"""The manager's admin port, and its page of all hubs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from controllers.runtime import metrics
from controllers.runtime.admin import MAX_HEADERS, FleetPage, admin_server, page
from controllers.settings import Address
from kube.fleet import ANNOTATION, FleetHub, HubStatus
from kube.http.client import Client
from kube.http.http1 import Http1Session
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse


async def nobody(_: web.Request) -> web.Response:
    """Replace the fleet page."""
    return web.Response()


async def test_readyz_has_the_reason_of_an_unready_manager() -> None:
    counted = (
        "leader",
        "queue_depth",
        "busy",
        "work_seconds",
        "work_total",
        "retries_total",
        "writes_total",
        "objects",
    )
    port, trouble = free_port(), ["nodes: not listed yet"]
    metrics.RETRIES.labels("test").inc()
    address = Address(LOOPBACK, port)
    async with admin_server(address, address, lambda: trouble[0], nobody), aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://{LOOPBACK}:{port}{path}") as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "nodes: not listed yet\n")
        trouble[0] = ""
        assert await get("/readyz") == (200, "ok\n")
        status, page = await get("/metrics")
        assert status == 200
        for name in counted:
            assert f"edgehub_manager_{name}" in page
        assert "_created" not in page, "it has no times of birth"
        assert (await get("/other"))[0] == 404


async def test_header_lines_are_bounded() -> None:
    address = Address(LOOPBACK, free_port())
    headers = {f"X-{number}": "x" for number in range(MAX_HEADERS + 1)}
    async with (
        admin_server(address, address, lambda: "", nobody),
        aiohttp.ClientSession() as session,
        session.get(f"http://{LOOPBACK}:{address.port}/healthz", headers=headers) as answer,
    ):
        assert answer.status == 400


async def test_port_0_disables_the_admin_port() -> None:
    async with admin_server(Address("", 0), Address("", 0), lambda: "", nobody):
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOOPBACK, free_port())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_without_a_host_the_admin_port_listens_on_both_ip_families(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
    address = Address("", free_port())
    async with admin_server(address, address, lambda: "", nobody):
        _, writer = await asyncio.open_connection(host, address.port)
        writer.close()
        await writer.wait_closed()


NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as cloud:
        cloud.store.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": "n1",
                    "namespace": "kube-node-lease",
                    "annotations": {ANNOTATION: HubStatus("0.2.0", waiting=3).dump()},
                },
                "spec": {},
            }
        )
        yield cloud


async def test_concurrent_requests_of_the_fleet_page_read_the_cluster_once(cloud: ScriptableCloud) -> None:
    address = Address(LOOPBACK, free_port())
    url = f"http://{LOOPBACK}:{address.port}/fleet"
    async with Http1Session(aiohttp.ClientSession()) as reading, aiohttp.ClientSession() as session:
        fleet = FleetPage(Client(reading, cloud.url, {}))
        async with admin_server(address, address, str, fleet.answer):

            async def get(accept: str) -> tuple[int, str, str]:
                async with session.get(url, headers={"Accept": accept}) as answer:
                    return answer.status, answer.content_type, await answer.text()

            cloud.faults.add(Refuse(403, "Forbidden", "no right to leases"))
            status, _, text = await get("*/*")
            assert (status, "no right to leases" in text) == (502, True)
            answers = await asyncio.gather(*(get("application/json") for _ in range(10)))
            assert {(status, kind) for status, kind, _ in answers} == {(200, "application/json")}
            assert all('"node":"n1"' in text for *_, text in answers)
            status, kind, text = await get("text/html,*/*")
            assert (status, kind, "waiting writes: 3" in text) == (200, "text/html", True)
    assert sum("/leases" in each.path for each in cloud.requests) == 2


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example:10258"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}],
)
async def test_the_fleet_page_is_refused_to_other_web_pages(
    cloud: ScriptableCloud, headers: dict[str, str]
) -> None:
    """A web page could reach a forwarded port through its own name that resolves to 127.0.0.1."""
    address = Address(LOOPBACK, free_port())
    async with Http1Session(aiohttp.ClientSession()) as reading, aiohttp.ClientSession() as session:
        fleet = FleetPage(Client(reading, cloud.url, {}))
        async with admin_server(address, address, str, fleet.answer):
            for host, status in ((headers, 403), ({"Host": "localhost:8080"}, 200)):
                async with session.get(f"http://{LOOPBACK}:{address.port}/fleet", headers=host) as answer:
                    assert (answer.status, "n1" in await answer.text()) == (status, status == 200)


async def test_the_fleet_page_is_refused_over_the_network(cloud: ScriptableCloud) -> None:
    async with Http1Session(aiohttp.ClientSession()) as reading:
        request = make_mocked_request("GET", "/fleet")
        assert request.remote is None
        with pytest.raises(aiohttp.web.HTTPForbidden):
            await FleetPage(Client(reading, cloud.url, {})).answer(request)
    assert not cloud.requests


def test_text_of_hubs_is_escaped_on_the_fleet_page() -> None:
    hub = FleetHub("n1", HubStatus(pool="<script>"), "", None, ())
    assert "<td>&lt;script&gt;" in page([hub], NOW)
    assert "<p>pool &lt;b&gt;: Stopped: n7</p>" in page([], NOW, ["pool <b>: Stopped: n7"])


@pytest.mark.parametrize(
    ("needs", "said"), [([""], "1 hub, 0 need a person"), (["silent", ""], "2 hubs, 1 needs a person")]
)
def test_the_headline_of_the_fleet_page_counts_hubs(needs: list[str], said: str) -> None:
    hubs = [
        FleetHub(f"n{at}", HubStatus(), "", None, (each,) if each else ()) for at, each in enumerate(needs)
    ]
    assert f"<h1>{said}</h1>" in page(hubs, NOW)
