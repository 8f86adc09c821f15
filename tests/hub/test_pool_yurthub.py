"""A pool with hubs of both kinds: our hub follows a YurtHub, and a YurtHub follows our hub. Both use plain lists and
watches. Where the leading YurtHub serves no copy, the follower reads from the cloud."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kube.differences.records import CODING
from kube.errors import StatusError, bad_request, too_many_requests
from kube.json_type import Json
from kube.peers import NODES_GROUP
from tests.cloud.pki import Authority, Credential
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, slices
from tests.hub.support.pool_scene import followed, goes_on, leads
from tests.hub.support.pool_site import SERVICES, SLICES, Member, Site
from tests.hub.support.streams import Events
from tests.hub.support.yurthub_follower import ACCEPT, LIST, YurtHubFollower, connected
from tests.support.accepting import end_server
from tests.support.polling import eventually

GRACE = 0.1
"""Seconds that open watches get at the end; 0 would mean unlimited."""


class YurtHub:
    """Serve from a real kube-apiserver, like a YurtHub with a cloud from its copy. `running` opens its port."""

    def __init__(self, cloud: RealCloud, folder: Path, serving: Credential) -> None:
        """`serving` is the certificate of its port, for any names."""
        self.has_cloud = True
        """If False, it answers only lists and watches, as in an outage."""
        self.is_initializing = False
        """True if it has no copy yet."""
        self.codings: list[str] = []
        """The content codings that watches requested. It supports none."""
        self._cloud = cloud
        certificate, key = serving.write(folder, "yurthub")
        self._port = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cloud.authority_file))
        self._port.load_cert_chain(certificate, key)
        self._port.verify_mode = ssl.CERT_OPTIONAL
        own = cloud.authority.issue_admin().write(folder, "yurthub-client")
        self._own = ssl.create_default_context(cafile=str(cloud.authority_file))
        self._own.load_cert_chain(*own)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._listening: socket.socket | None = None

    @asynccontextmanager
    async def running(self, address: str, port: int) -> AsyncIterator[YurtHub]:
        server = web.Server(self._answer, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=GRACE)
        await self._runner.setup()
        self._listening = socket.create_server((address, port))
        await web.SockSite(self._runner, self._listening, ssl_context=self._port).start()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._own)) as self._session:
            try:
                yield self
            finally:
                await self.stop()

    async def stop(self) -> None:
        """Close its port, and end its requests. It may have ended already."""
        assert self._runner is not None
        assert self._listening is not None
        await end_server(self._runner, self._listening)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._hand_on(request)
        except StatusError as error:
            return web.Response(status=error.code, body=error.to_json(), content_type="application/json")

    async def _hand_on(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._session is not None
        is_shared = "services" in request.path or "endpointslices" in request.path
        if is_shared and self.is_initializing:
            raise too_many_requests("cacher is initializing, please try again later.", 1)
        if not is_shared and not self.has_cloud:
            raise bad_request(f"local proxy does not support request({request.method} {request.path})")
        if "watch" in request.query:
            self.codings.append(request.headers.get("Accept-Encoding", ""))
        headers = {"Accept": request.headers.get("Accept", "*/*")}
        async with self._session.get(self._cloud.url + request.raw_path, headers=headers) as found:
            answer = web.StreamResponse(
                status=found.status, headers={"Content-Type": found.headers["Content-Type"]}
            )
            await answer.prepare(request)
            # A reader may disconnect.
            with contextlib.suppress(aiohttp.ClientConnectionResetError):
                async for piece in found.content.iter_any():
                    await answer.write(piece)
                await answer.write_eof()
            return answer


ADDRESS = "127.0.37.9"
LEADER = "lock-9"

type Serving = Callable[[Authority], Credential]
"""Makes the certificate of the YurtHub's port, with the CA of the cluster."""


class Scene:
    """Our follower with a client, and the YurtHub that leads its pool."""

    def __init__(self, follower: Member, leader: YurtHub, events: Events, make: Callable[[], str]) -> None:
        self.follower, self.leader = follower, leader
        self._events, self._make = events, make
        self._lists = follower.lists(SLICES)

    async def goes_on_at(self, server: str) -> None:
        """Check that the follower reads from a server, lists nothing again, and its client loses no event and gets none
        twice."""
        await asyncio.to_thread(
            eventually, lambda: self.follower.server(SLICES) == server, f"slices come from {server}"
        )
        await goes_on(self.follower, self._events, self._make, self._lists)

    async def leaves(self, why: str) -> None:
        """Wait until the follower leaves the YurtHub, with this reason in the log."""
        await asyncio.to_thread(eventually, lambda: why in self._failures(), f"it is left: {why}")

    def _failures(self) -> str:
        return "".join(str(each["failure"]) for each in self.follower.pool()["follows"])


@pytest.fixture(scope="module")
def site(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a pool of two nodes. On the second one a YurtHub runs instead of our hub."""
    made = Site(real_cloud, tmp_path_factory.mktemp("site"), "lock", 37)
    made.prepare(1, 9)
    try:
        made.members[0].hub.start()
        yield made
    finally:
        made.close()


@asynccontextmanager
async def led(site: Site, serving: Serving, *, is_initializing: bool = False) -> AsyncIterator[Scene]:
    """Name the YurtHub, whose port has a certificate, in the pool's ConfigMap during this block."""
    follower = site.members[0]
    leader = YurtHub(site.cloud, site.folder, serving(site.cloud.authority))
    leader.is_initializing = is_initializing
    async with AsyncExitStack() as stack:
        events, make = await stack.enter_async_context(followed(site, follower))
        await stack.enter_async_context(leader.running(ADDRESS, site.port))
        scene = await asyncio.to_thread(Scene, follower, leader, events, make)
        await asyncio.to_thread(site.configure, {"leaders": f"{LEADER}/{ADDRESS}"})
        try:
            yield scene
        finally:
            # A hub drops a leader's failures when the ConfigMap no longer names it.
            await asyncio.to_thread(site.configure, {"leaders": ""})


def right(authority: Authority) -> Credential:
    """Return the certificate that a cluster signs for a YurtHub's port: with its node's name and addresses."""
    return authority.issue_server(
        f"system:node:{LEADER}", ["10.96.0.1", ADDRESS, "kubernetes"], [NODES_GROUP]
    )


async def test_a_follower_reads_from_a_leading_yurthub_or_else_from_the_cloud(site: Site) -> None:
    """The follower requests differences, which the YurtHub does not support."""
    async with led(site, right) as scene:
        await scene.goes_on_at(LEADER)
        assert scene.leader.codings
        assert all(CODING in each for each in scene.leader.codings)
        await scene.leader.stop()
        await scene.goes_on_at("cloud")


async def test_a_yurthub_without_a_copy_is_left_until_it_has_one(site: Site) -> None:
    async with led(site, right, is_initializing=True) as scene:
        await scene.leaves("initializing")
        await scene.goes_on_at("cloud")
        scene.leader.is_initializing = False
        await scene.goes_on_at(LEADER)


async def test_a_yurthub_without_a_cloud_is_the_last_choice(site: Site) -> None:
    """The YurtHub serves its copy, which a follower reads only while it has no cloud itself."""
    async with led(site, right) as scene:
        await scene.goes_on_at(LEADER)
        scene.leader.has_cloud = False
        await scene.goes_on_at("cloud")
        scene.follower.link.refuse()
        try:
            await scene.goes_on_at(LEADER)
        finally:
            scene.follower.link.carry()
        await scene.goes_on_at("cloud")
        scene.leader.has_cloud = True
        await scene.goes_on_at(LEADER)


_numbers = itertools.count(1)


def make(site: Site, path: str) -> Json:
    """Create one more slice or Service."""
    name = f"lock-{next(_numbers)}"
    if path == SLICES:
        return site.cloud.admin.post(slices("default"), endpoint_slice(name, "web", "n1"))
    service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
    return site.cloud.admin.post("/api/v1/namespaces/default/services", service)


@pytest.fixture
def leader(site: Site) -> Iterator[tuple[str, int]]:
    """Return the address of the peer port of our leading hub."""
    member = site.members[0]
    site.lead(member)
    eventually(lambda: leads(member), "the hub leads")
    yield member.address, site.port
    site.configure({"leaders": ""})


@asynccontextmanager
async def yurthub_at(
    site: Site, server: tuple[str, int], path: str, accept: str = ACCEPT
) -> AsyncIterator[YurtHubFollower]:
    node = site.members[1]
    async with connected(server, site.cloud.authority_file, node.credential, site.folder) as streams:
        yield YurtHubFollower(streams, node.name, path, accept)


@pytest.mark.parametrize("path", [SERVICES, SLICES])
@pytest.mark.parametrize("accept", [ACCEPT, "application/vnd.kubernetes.protobuf,application/json"])
@pytest.mark.parametrize("query", [LIST, "resourceVersion=0"])
async def test_a_yurthub_lists_and_watches_at_a_leading_hub(
    site: Site, leader: tuple[str, int], path: str, accept: str, query: str
) -> None:
    """For any Accept header, list and watch contain each object once."""
    await asyncio.to_thread(make, site, path)
    async with yurthub_at(site, leader, path, accept) as follower:
        version, names = await follower.list_names(query)
        watch = await follower.watch(version)
        made = await asyncio.to_thread(make, site, path)
        event = await watch.first(made["metadata"]["name"])
    assert (event.type, event.version) == ("ADDED", int(made["metadata"]["resourceVersion"]))
    held = names + [each.name for each in watch.events if each.type == "ADDED"]
    there = await asyncio.to_thread(site.cloud.admin.get, path)
    assert sorted(held) == sorted(each["metadata"]["name"] for each in there["items"])


async def test_a_yurthub_resumes_at_the_cloud_after_its_leader_ended(
    site: Site, leader: tuple[str, int]
) -> None:
    """When a hub stops leading, its watches end, each with a bookmark."""
    async with yurthub_at(site, leader, SLICES) as follower:
        version, _ = await follower.list_names(LIST)
        watch = await follower.watch(version)
        before = await asyncio.to_thread(make, site, SLICES)
        event = await watch.first(before["metadata"]["name"])
        await asyncio.to_thread(site.configure, {"leaders": ""})
        last = await watch.end()
    assert last.type == "BOOKMARK"
    assert last.version >= event.version
    after = await asyncio.to_thread(make, site, SLICES)
    async with yurthub_at(site, (site.cloud.host, site.cloud.port), SLICES) as follower:
        watch = await follower.watch(last.version)
        await watch.first(after["metadata"]["name"])
    assert before["metadata"]["name"] not in [each.name for each in watch.events]
