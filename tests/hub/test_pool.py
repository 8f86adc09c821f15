"""A node pool of real hubs with a real control plane: the server from which each hub reads, and failing leaders."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, slices
from tests.hub.support.pool_scene import followed, goes_on, leader_of, leads, one_more
from tests.hub.support.pool_site import ENDPOINTS, SERVICES, SHARED, SLICES, Member, Site
from tests.hub.support.streams import WAIT, listed, watching
from tests.support.polling import eventually


@pytest.fixture(scope="module")
def site(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Prepare three hubs of one pool; the first two may lead."""
    made = Site(real_cloud, tmp_path_factory.mktemp("site"), "harbour", 31)
    made.prepare(1, 2, 3)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def pool(site: Site) -> Site:
    """Run all hubs of the pool, the third after a start without a cloud and without a copy."""
    first, second, third = site.members
    site.lead(first, second)
    for each in (first, second):
        each.hub.start()
    third.hub.start()  # it reads the rules and its leaders, without requests of clients
    eventually(lambda: third.pool()["role"] == "follower", "the third node follows")
    third.hub.stop()
    third.link.refuse()
    third.hub.start()
    return site


@pytest.fixture
async def settled(pool: Site) -> Site:
    """Return the pool with two leaders, which the third node follows."""
    await asyncio.to_thread(settle, pool)
    return pool


def settle(pool: Site) -> None:
    for each in pool.members:
        each.link.carry()
        if not each.hub.is_running:
            each.hub.start()
    pool.enrol(*pool.members)
    pool.lead(*pool.members[:2])
    follower = pool.members[2]
    for each in pool.members[:2]:
        eventually(partial(leads, each), f"{each.name} leads and has a cloud")
    eventually(lambda: all(each["usable"] for each in follower.pool()["follows"]), "all leaders are usable")
    eventually(lambda: follower.server(SLICES) in ("", leader_of(follower)), "the follower is at its leader")


# -- following -----------------------------------------------------------------------------------------------------


async def test_a_node_without_cloud_and_copies_starts_from_its_leader(pool: Site) -> None:
    follower = pool.members[2]
    name = "from-the-leader"
    await asyncio.to_thread(pool.cloud.admin.post, slices("default"), endpoint_slice(name, "web", "n1"))
    # The cloud is away for this node, which has the rules and the names of its leaders on disk. On a busy machine a
    # leader has made it a deputy by now, which reads without a client.
    assert not follower.hub.metric("edgehub_source_server", server="cloud")
    async with watching(follower.hub.url, SLICES, component="kube-proxy") as events:
        await events.first("ADDED", name)
    found = await listed(follower.hub.url, SERVICES, component="kube-proxy", resourceVersion="0")
    assert "kubernetes" in found
    assert follower.server(SLICES) in {each.name for each in pool.members[:2]}


async def test_a_node_that_was_never_online_starts_from_the_configured_leaders(settled: Site) -> None:
    async def listed_when_inputs_are_known(newcomer: Member) -> dict[str, ApiObject]:
        """Return Services once a new hub has read the inputs of its filters: on busy cores it answers kube-proxy 503
        until then.
        """
        async with asyncio.timeout(WAIT):
            while True:
                try:
                    return await listed(
                        newcomer.hub.url, SERVICES, component="kube-proxy", resourceVersion="0"
                    )
                except AssertionError as error:
                    if not str(error).startswith("503"):
                        raise
                await asyncio.sleep(1)

    leaders = ",".join(f"{each.name}/{each.address}" for each in settled.members[:2])
    newcomer = Member(settled, 4, given=True, flags=("--leaders", leaders))
    newcomer.link.refuse()
    settled.register(newcomer)
    settled.enrol(*settled.members, newcomer)
    try:
        await asyncio.to_thread(newcomer.hub.start)
        assert "kubernetes" in await listed_when_inputs_are_known(newcomer)
        # In the encoding that a deputy stores: the new leader was a deputy, and lists one source of slices once.
        protobuf = Encoding.PROTOBUF
        async with watching(newcomer.hub.url, SLICES, component="kube-proxy", encoding=protobuf) as events:
            name = await asyncio.to_thread(one_more, settled.cloud)
            await events.first("ADDED", name)
            assert not newcomer.pool()["known"]
            lists = newcomer.lists(SLICES)
            newcomer.link.carry()
            await asyncio.to_thread(eventually, lambda: newcomer.pool()["known"], "the ConfigMap is read")
            assert newcomer.server(SLICES) in {each.name for each in settled.members[:2]}
            assert newcomer.lists(SLICES) == lists
            assert not events.ended
    finally:
        await asyncio.to_thread(newcomer.hub.stop)
        await asyncio.to_thread(newcomer.link.close)


async def test_a_follower_reads_only_shared_resources_from_a_leader(settled: Site) -> None:
    follower = settled.members[2]
    async with followed(settled, settled.members[2]):
        await listed(follower.hub.url, ENDPOINTS, component="kube-proxy", resourceVersion="0")
        leader = leader_of(follower)
        assert await asyncio.to_thread(follower.server, SLICES) == leader
        assert await asyncio.to_thread(follower.server, ENDPOINTS) == "cloud"
        assert follower.hub.metric("edgehub_source_server", server=leader) > 0
        about = "component=kube-proxy&namespace=default&name=kubernetes&resource="
        for resource, origin in (("endpointslices", f"leader {leader}"), ("endpoints", "the cloud")):
            explained = await asyncio.to_thread(follower.hub.admin, f"/debug/explain?{about}{resource}")
            assert f"from: {origin}" in explained
        assert follower.hub.metric("edgehub_peer_bytes_total", direction="received", node=leader) > 0
        assert follower.hub.metric("edgehub_pool_role", role="follower") == 1
        served = next(each for each in settled.members if each.name == leader)
        assert served.hub.metric("edgehub_peer_watchers") > 0
        assert served.pool()["followers"][follower.name] > 0
        assert served.hub.metric("edgehub_peer_bytes_total", direction="sent", node=follower.name) > 0


async def test_an_edit_of_shared_resources_moves_running_sources(settled: Site) -> None:
    follower = settled.members[2]
    async with followed(settled, settled.members[2]) as (events, make):
        lists = await asyncio.to_thread(follower.lists, SLICES)
        leaders = settled.members[:2]
        await asyncio.to_thread(settled.lead, *leaders, scope="/v1/services")
        await asyncio.to_thread(
            eventually, lambda: follower.server(SLICES) == "cloud", "slices from the cloud"
        )
        await goes_on(settled.members[2], events, make, lists)
        await asyncio.to_thread(settled.lead, *leaders, scope=SHARED)
        await asyncio.to_thread(
            eventually, lambda: follower.server(SLICES) != "cloud", "slices from a leader"
        )
        await goes_on(settled.members[2], events, make, lists)


async def test_a_dissolved_pool_reads_from_the_cloud_and_a_new_one_from_a_leader(settled: Site) -> None:
    def is_at_leader(follower: Member) -> bool:
        return follower.server(SLICES) not in ("", "cloud")

    def is_alone(member: Member) -> bool:
        """True if the member reads from the cloud, and serves no hub."""
        found = member.pool()
        return (found["role"], found["followers"], member.server(SLICES) or "cloud") == ("none", {}, "cloud")

    follower = settled.members[2]
    # Data of the ConfigMap that make no pool of these hubs; None: there is no ConfigMap.
    no_pool = [
        {"enable-leader-election": "false"},
        {"interconnectivity": "false"},
        {"interconnectivity": "yes", "leaders": "nobody"},
        {"leaders": ",,/"},
        None,
    ]
    async with followed(settled, follower) as (events, make):
        lists = await asyncio.to_thread(follower.lists, SLICES)
        for data in no_pool:
            await asyncio.to_thread(settled.configure, data)
            for each in settled.members:
                await asyncio.to_thread(eventually, partial(is_alone, each), f"{each.name}, {data}")
            await goes_on(follower, events, make, lists)
            await asyncio.to_thread(settled.configure, {})
            await asyncio.to_thread(settled.lead, *settled.members[:2])
            await asyncio.to_thread(eventually, partial(is_at_leader, follower), f"a leader after {data}")
            await goes_on(follower, events, make, lists)


# -- failing over --------------------------------------------------------------------------------------------------


def kill(leader: Member, _pool: Site) -> None:
    leader.hub.kill()


def freeze(leader: Member, _pool: Site) -> None:
    """Stop the leader: its kernel still accepts connections, but nothing answers."""
    os.kill(leader.hub.pid, signal.SIGSTOP)


def blind(leader: Member, _pool: Site) -> None:
    """Cut the leader off the cloud: it serves an old copy."""
    leader.link.black_hole()


def depose(leader: Member, pool: Site) -> None:
    pool.lead(*(each for each in pool.members[:2] if each is not leader))


def deny(leader: Member, pool: Site) -> None:
    """Make the leader answer 503, as it was deposed. The follower, which has no cloud now, does not know that."""
    pool.members[2].link.black_hole()
    depose(leader, pool)


def outrun(leader: Member, pool: Site) -> None:
    """Kill the leader; the other leader is behind the follower's version."""
    follower = pool.members[2]
    other = next(each for each in pool.members[:2] if each is not leader)
    other.link.black_hole()
    made = pool.cloud.admin.get(f"{slices('default')}/{one_more(pool.cloud)}")
    newest = int(made["metadata"]["resourceVersion"])
    eventually(lambda: follower.version(SLICES) >= newest, "the follower has what the other leader has not")
    leader.hub.kill()


@pytest.mark.parametrize("fault", [kill, freeze, blind, depose, deny, outrun])
async def test_the_failure_of_a_leader_costs_a_follower_no_list_and_no_event(
    settled: Site, fault: Callable[[Member, Site], None]
) -> None:
    follower = settled.members[2]
    async with followed(settled, settled.members[2]) as (events, make):
        lists = await asyncio.to_thread(follower.lists, SLICES)
        name = await asyncio.to_thread(leader_of, follower)
        leader = next(each for each in settled.members if each.name == name)
        await asyncio.to_thread(fault, leader, settled)
        try:
            await goes_on(settled.members[2], events, make, lists)
            await asyncio.to_thread(
                eventually, lambda: follower.server(SLICES) not in ("", name), "another server"
            )
            await goes_on(settled.members[2], events, make, lists)
        finally:
            if fault is freeze:
                os.kill(leader.hub.pid, signal.SIGCONT)
