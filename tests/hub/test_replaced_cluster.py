"""A cluster that was replaced without the node's notice: same address, same certificates, and higher versions. A copy
of the previous cluster looks like an older state of the new one. Once one source has detected another history, the hub
serves nothing of the previous cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rights import rights, rule, user
from tests.hub.support.objects import endpoint_slice, headless, services, slices
from tests.hub.support.outage import PROTOBUF, Outage
from tests.hub.support.site import hub_before
from tests.hub.support.streams import WAIT

MAPS = "/api/v1/configmaps"
SERVICES = "/api/v1/services"
"""The source that detects another cluster at once, by an object that every cluster has from its start."""
READERS = {
    SERVICES: "kube-proxy",
    "/apis/discovery.k8s.io/v1/endpointslices": "kube-proxy",
    MAPS: "flanneld",
    "/api/v1/namespaces/shop/configmaps": "flanneld",
    "/api/v1/namespaces": "coredns",
}
"""Lists and their readers: from views, copies and cached responses."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    with RealCloud(tmp_path_factory.mktemp("replaced"), cloud_programs) as made:
        yield made


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_new", [False, True], ids=["versions from below", "all versions above"])
@pytest.mark.parametrize("then", ["the link stays", "an outage", "kill -9 and an outage"])
async def test_nothing_of_the_former_cluster_is_served_once_one_source_detects_another(
    cloud: RealCloud, tmp_path: Path, then: str, is_new: bool
) -> None:
    class Readers:
        """The components of a node, and whether one of them has seen the new cluster."""

        def __init__(self, outage: Outage) -> None:
            self._outage = outage
            self.is_proved = False

        async def see(self, path: str) -> str:
            """Return `former` or `new`, depending on the cluster of a list's objects; "" if it has none."""
            answer = await self._outage.ask(f"{path}?resourceVersion=0", PROTOBUF, READERS[path])
            found = {name for name in ("former", "new") if f"of-the-{name}".encode() in answer.body}
            assert len(found) < 2, f"{path} shows both"
            shown = found.pop() if found else ""
            assert not (self.is_proved and shown == "former"), f"{path} shows the former cluster"
            self.is_proved |= shown == "new" and path == SERVICES
            return shown

        async def see_all(self) -> set[str]:
            return {await self.see(path) for path in READERS}

    def fill(cloud: RealCloud, name: str, node: str) -> None:
        """Create objects with a name, and let the node read them."""
        verbs = [rule("", "configmaps namespaces", "get list watch")]
        cloud.apply(HUB_RBAC)
        cloud.apply(rights("reader", verbs, user(f"system:node:{node}")))
        cloud.admin.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        cloud.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        cloud.admin.post("/api/v1/namespaces/shop/configmaps", {"metadata": {"name": name}})
        cloud.admin.post(services("shop"), headless(name))
        cloud.admin.post(slices("shop"), endpoint_slice(name, name, node))

    replace = partial(cloud.replace, is_new=is_new)
    if "of-the-new" in await asyncio.to_thread(lambda: cloud.kubectl("get", "namespaces").stdout):
        await asyncio.to_thread(replace)
    await asyncio.to_thread(fill, cloud, "of-the-former", "edge")
    one = "/api/v1/namespaces/shop/configmaps/of-the-former"
    with Link(cloud.host, cloud.port) as link:
        hub = await asyncio.to_thread(hub_before, cloud, tmp_path, "edge", "--wait", "4", link=link)
        outage, readers = Outage(hub, link), Readers(Outage(hub, link))
        await asyncio.to_thread(hub.start)
        try:
            assert await readers.see_all() == {"former"}
            assert (await outage.ask(one)).status == 200
            await asyncio.to_thread(hub.wait_until_stored, "of-the-former", len(READERS))
            await outage.begin()
            await asyncio.to_thread(replace)
            await asyncio.to_thread(fill, cloud, "of-the-new", "edge")
            assert await readers.see_all() == {"former"}, "nobody knows yet"
            link.carry()
            while not readers.is_proved:
                await readers.see(SERVICES)
            if "kill" in then:
                # The disk marks copies as unverified before it gets later data.
                await asyncio.to_thread(hub.wait_until_stored, "of-the-new", 1)
                await asyncio.to_thread(hub.kill)
            if "outage" in then:
                link.refuse()
            if "kill" in then:
                await asyncio.to_thread(
                    hub.start, ready=False
                )  # rules from an unverified history are not used
            for _ in range(3):
                await readers.see_all()
                assert (await outage.ask(one)).status != 200
            link.carry()
            async with asyncio.timeout(WAIT):
                while await readers.see_all() != {"new"}:
                    pass
        finally:
            await asyncio.to_thread(hub.stop)
