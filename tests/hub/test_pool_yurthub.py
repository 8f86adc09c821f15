"""A pool whose leader is a YurtHub: a hub of ours follows it by plain lists and watches, or reads from the cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kube.differences.records import CODING
from kube.peers import NODES_GROUP
from tests.cloud.pki import Authority, Credential
from tests.cloud.real import RealCloud
from tests.hub.support.pool_scene import followed, goes_on
from tests.hub.support.pool_site import SLICES, Member, Site, eventually
from tests.hub.support.streams import Events
from tests.hub.support.yurthub import YurtHub

ADDRESS = "127.0.37.9"
LEADER = "lock-yurthub"

type Serving = Callable[[Authority], Credential]
"""Makes the certificate of the YurtHub's port, with the CA of the cluster."""


class Scene:
    """A follower of ours with a client, and the YurtHub that leads its pool."""

    def __init__(self, follower: Member, leader: YurtHub, events: Events, make: Callable[[], str]) -> None:
        self.follower, self.leader = follower, leader
        self._events, self._make = events, make
        self._lists = follower.lists(SLICES)

    async def goes_on_at(self, server: str) -> None:
        """The follower reads from a server, lists nothing again, and its client loses no event and gets none twice."""
        await asyncio.to_thread(
            eventually, lambda: self.follower.server(SLICES) == server, f"slices come from {server}"
        )
        await goes_on(self.follower, self._events, self._make, self._lists)

    async def leaves(self, why: str) -> None:
        """The follower leaves the YurtHub, and says why."""
        await asyncio.to_thread(eventually, lambda: why in self._failures(), f"it is left: {why}")

    def _failures(self) -> str:
        return "".join(str(each["failure"]) for each in self.follower.pool()["follows"])


@pytest.fixture(scope="module")
def site(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(real_cloud, tmp_path_factory.mktemp("site"), "lock", 37)
    made.prepare(1)
    try:
        made.members[0].hub.start()
        yield made
    finally:
        made.close()


@asynccontextmanager
async def led(site: Site, serving: Serving, *, is_initializing: bool = False) -> AsyncIterator[Scene]:
    """The pool's ConfigMap names the YurtHub, whose port has a certificate, from the beginning of the block on."""
    [follower] = site.members
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
            # What a hub knows of a leader's failures ends with the leader's name.
            await asyncio.to_thread(site.configure, {"leaders": ""})


def right(authority: Authority) -> Credential:
    """The certificate that a cluster signs for the port of a YurtHub: its node's name, and its addresses."""
    return authority.issue_server(
        f"system:node:{LEADER}", ["10.96.0.1", ADDRESS, "kubernetes"], [NODES_GROUP]
    )


def of_another_node(authority: Authority) -> Credential:
    return authority.issue_server("system:node:lock-1", ["127.0.37.1", "kubernetes"], [NODES_GROUP])


def of_a_foreign_authority(_authority: Authority) -> Credential:
    return right(Authority("foreign CA"))


async def test_a_follower_reads_from_a_yurthub_that_leads_and_without_it_from_the_cloud(site: Site) -> None:
    """The follower asks for differences, of which the YurtHub knows nothing."""
    async with led(site, right) as scene:
        await scene.goes_on_at(LEADER)
        assert scene.leader.codings
        assert all(CODING in each for each in scene.leader.codings)
        await scene.leader.stop()
        await scene.goes_on_at("cloud")


@pytest.mark.parametrize("serving", [of_another_node, of_a_foreign_authority])
async def test_who_is_not_the_named_node_is_not_read_from(site: Site, serving: Serving) -> None:
    async with led(site, serving) as scene:
        await scene.leaves("certificate")
        await scene.goes_on_at("cloud")
        assert not scene.leader.codings


async def test_a_yurthub_without_a_copy_is_left_until_it_has_one(site: Site) -> None:
    async with led(site, right, is_initializing=True) as scene:
        await scene.leaves("initializing")
        await scene.goes_on_at("cloud")
        scene.leader.is_initializing = False
        await scene.goes_on_at(LEADER)


async def test_a_yurthub_without_a_cloud_is_the_last_choice(site: Site) -> None:
    """It serves what it has, and a follower reads that while the follower itself has no cloud."""
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
