"""A pool of real hubs with a control plane that lacks the kind NodePool: the label of a node names its pool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.real import RealCloud
from tests.hub.support.pool_scene import followed, goes_on
from tests.hub.support.pool_site import SLICES, Member, Site
from tests.support.polling import eventually


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[Site]:
    """Run a leader and a follower with their own control plane, as the session's may have NodePools."""
    folder = tmp_path_factory.mktemp("by-label")
    with RealCloud(folder, cloud_programs) as cloud:
        made = Site(cloud, folder, "canal", 38, has_node_pools=False)
        made.prepare(1, 2)
        made.lead(made.members[0])
        try:
            made.start()
            yield made
        finally:
            made.close()


async def test_the_nodes_with_the_label_of_a_pool_are_its_members(site: Site) -> None:
    """A follower reads from the leader while its node has the label, otherwise from the cloud."""

    def reads_from(follower: Member) -> str:
        return follower.server(SLICES)

    leader, follower = site.members
    everybody = [each.name for each in site.members]
    await asyncio.to_thread(eventually, lambda: leader.pool()["role"] == "leader", "the first node leads")
    await asyncio.to_thread(
        eventually, lambda: leader.pool()["members"] == everybody, "its members are known"
    )
    async with followed(site, follower) as (events, make):
        await asyncio.to_thread(eventually, lambda: reads_from(follower) == leader.name, "a leader's slices")
        lists = await asyncio.to_thread(follower.lists, SLICES)
        for _ in range(2):
            await asyncio.to_thread(site.enrol, leader)
            await asyncio.to_thread(eventually, lambda: reads_from(follower) == "cloud", "the cloud's slices")
            await asyncio.to_thread(
                eventually, lambda: leader.pool()["members"] == [leader.name], "the leader knows that it left"
            )
            await asyncio.to_thread(eventually, lambda: not leader.pool()["followers"], "the streams end")
            await goes_on(follower, events, make, lists)
            await asyncio.to_thread(site.enrol, leader, follower)
            await asyncio.to_thread(
                eventually, lambda: reads_from(follower) == leader.name, "the leader's slices again"
            )
            await goes_on(follower, events, make, lists)
