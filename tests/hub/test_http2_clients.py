"""HTTP/2 clients, which use one connection for all requests: through outages, and with more streams than a server
allows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, bound
from tests.hub.support.http2 import Streams
from tests.hub.support.process import Hub
from tests.hub.support.site import hub_before

NAMESPACES = "/api/v1/namespaces"


def allow(cloud: RealCloud) -> dict[str, str]:
    """Return the headers of a component that is permitted everything and not cached, so that all its requests are
    relayed."""
    token = cloud.token("default", "lasting")
    cloud.apply([bound("cluster-admin", account("default", "lasting"), name="lasting")])
    return {"authorization": f"Bearer {token}", "user-agent": "lasting/v1"}


@pytest.fixture
async def headers(real_cloud: RealCloud) -> dict[str, str]:
    return await asyncio.to_thread(allow, real_cloud)


@asynccontextmanager
async def connected(hub: Hub) -> AsyncIterator[Streams]:
    streams = await Streams.open(hub.tls_port, str(hub.authority))
    try:
        async with asyncio.timeout(60):
            yield streams
    finally:
        await streams.close()


async def ask(streams: Streams, headers: dict[str, str]) -> int:
    """Return the status of a complete response."""
    stream = streams.get(NAMESPACES, headers)
    await streams.until(lambda: stream in streams.ended)
    return streams.status[stream]


async def test_more_relayed_watches_than_a_server_allows_per_connection_work(
    linked: tuple[Hub, Link], headers: dict[str, str]
) -> None:
    hub, link = linked
    await asyncio.to_thread(hub.start)
    before = link.traffic.accepted
    # Watches of one client: kube-apiserver allows 100 per connection.
    many = 250
    async with connected(hub) as streams:
        # Each selects one object, however many namespaces other tests have left.
        path = f"{NAMESPACES}?watch=true&fieldSelector=metadata.name%3Ddefault"
        watches = [streams.get(path, headers) for _ in range(many)]
        await streams.until(lambda: all(streams.received[each] for each in watches))
        assert {streams.status[each] for each in watches} == {200}
        # One more request still works.
        assert await ask(streams, headers) == 200
    assert link.traffic.accepted - before <= many / 100 + 3, "streams share connections"


@pytest.fixture
def leaving(cloud_programs: dict[str, Path], tmp_path: Path) -> Iterator[tuple[Hub, Link, RealCloud]]:
    """Run a server like one behind a load balancer: it closes a connection (GOAWAY) at one request in fifty, to
    redistribute its clients."""
    with (
        RealCloud(tmp_path / "cloud", cloud_programs, apiserver_flags=["--goaway-chance=0.02"]) as cloud,
        Link(cloud.host, cloud.port) as link,
        hub_before(cloud, tmp_path, "n1", link=link) as hub,
    ):
        yield hub, link, cloud


async def test_a_graceful_goaway_by_the_server_interrupts_no_request(
    leaving: tuple[Hub, Link, RealCloud],
) -> None:
    hub, link, cloud = leaving
    headers, before = await asyncio.to_thread(allow, cloud), link.traffic.accepted
    async with connected(hub) as streams:
        watch = streams.get(f"{NAMESPACES}?watch=true&resourceVersion=0", headers)
        codes = Counter([await ask(streams, headers) for _ in range(500)])
        assert codes == {200: 500}
        assert link.traffic.accepted - before >= 3, "the server was left, and come back to"
        received = streams.received[watch]
        await asyncio.to_thread(cloud.admin.post, NAMESPACES, {"metadata": {"name": "late"}})
        await streams.until(lambda: streams.received[watch] > received)
        assert watch not in streams.ended
