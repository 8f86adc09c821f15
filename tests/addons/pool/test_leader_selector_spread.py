"""A whole pool whose followers lose their leader, on a virtual clock: what the cloud and the leader see of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from addons.pool.leader_selector import ROLE_TIMEOUT
from addons.pool.pool_config import NO_POOL, Role
from addons.pool.spread import SPREAD
from kube.store.store import Change, Store
from tests.addons.support.pool_of_nodes import FIRST_VERSION, Link, Pool, PoolServer, pool_of, started

pytestmark = pytest.mark.looptime

SIZE = 38
"""Followers of a pool of forty nodes."""
A_SECOND = 4
"""The most nodes of the pool that may begin to read from the cloud within a second."""


def _most_in_a_second(server: PoolServer) -> int:
    """The largest number of nodes that begin to read from a server within a second, whenever that begins.

    The second is a hundredth short, so that a node which begins a whole second after another is not counted with it.
    """
    begun = server.begun
    return max(len({node for at, node in begun if 0 <= at - first < 0.99}) for first, _ in begun)


def _refuse(pool: Pool) -> None:
    pool.leading.fail(Link.REFUSED)


def _swallow(pool: Pool) -> None:
    pool.leading.fail(Link.SWALLOWED)


def _forget(pool: Pool) -> None:
    """The leader starts anew: its history begins with the next change."""
    pool.leading.oldest = pool.version + 1
    pool.leading.cut()


def _depose(pool: Pool) -> None:
    """The pool has no leader any more."""
    pool.elect(Role.NONE, pool.config._replace(leaders=()))


def _dissolve(pool: Pool) -> None:
    """The nodes are in no pool any more, or their pool elects none: then no node knows the others."""
    pool.elect(Role.NONE, NO_POOL)


def _unshare(pool: Pool) -> None:
    """The pool shares other resources."""
    pool.elect(Role.FOLLOWER, pool.config._replace(scope=()))


def _elect_a_dead_node(pool: Pool) -> None:
    pool.leading_next.fail(Link.REFUSED)
    pool.elect(Role.FOLLOWER, pool.config._replace(leaders=(pool.next_leader,)))


@pytest.mark.parametrize(
    "lose", [_refuse, _swallow, _forget, _depose, _dissolve, _unshare, _elect_a_dead_node]
)
async def test_no_more_than_a_tenth_of_a_pool_a_second_begins_to_read_from_the_cloud(
    lose: Callable[[Pool], None],
) -> None:
    """Whether all notice at once that their leader serves no longer, or each at its own next probe."""
    # Seconds within which a follower notices a black hole.
    noticed = 6.0
    async with pool_of(SIZE) as pool:
        lists = pool.lists
        lose(pool)
        await asyncio.sleep(noticed + SPREAD + 1.0)
        assert len({node for _, node in pool.cloud.begun}) == SIZE
        assert _most_in_a_second(pool.cloud) == A_SECOND
        assert pool.lists == lists, "every watch goes on from where it was"
        assert pool.are_current


@pytest.mark.parametrize("seed", range(2))
async def test_each_event_comes_once_however_often_followers_change_servers_in_a_burst(seed: int) -> None:
    """From leaders to the cloud and back, and between leaders, while fifty events come in a second."""

    async def _burst(pool: Pool) -> None:
        while True:
            await asyncio.sleep(0.02)
            pool.publish()

    class Heard:
        """The versions of all changes of a store, in their order."""

        def __init__(self, store: Store) -> None:
            self.versions: list[int] = []
            store.listen(self)

        def changed(self, change: Change) -> None:
            self.versions.append(change.version)

        def advanced(self) -> None:
            """There is nothing to hear."""

        def restarted(self) -> None:
            raise AssertionError("versions went backwards")

    def elect_the_first(pool: Pool) -> None:
        pool.elect(Role.FOLLOWER, pool.config)

    def elect_the_next(pool: Pool) -> None:
        pool.elect(Role.FOLLOWER, pool.config._replace(leaders=(pool.next_leader,)))

    def mend(pool: Pool) -> None:
        """Mend the link. Data that waits in a broken connection is lost with it."""
        for server in (pool.leading, pool.leading_next):
            server.link, server.oldest = Link.UP, 0
            server.cut()

    chance = random.Random(seed)
    changes = [_refuse, _swallow, _forget, mend, mend, _depose, *2 * [elect_the_next, elect_the_first]]
    async with pool_of(4) as pool:
        heard, lists = [Heard(each.store) for each in pool.followers], pool.lists
        burst = asyncio.create_task(_burst(pool))
        for change in chance.sample(changes, len(changes)):
            change(pool)
            await asyncio.sleep(chance.uniform(0.02, 6.0))
        _depose(pool)
        await asyncio.sleep(SPREAD)
        assert len(pool.cloud.readers) == 4
        mend(pool)
        elect_the_first(pool)
        await asyncio.sleep(2 * SPREAD)
        assert len(pool.leading.readers) == 4
        burst.cancel()
        await asyncio.sleep(1.0)
        assert pool.are_current
        for each in heard:
            assert len(each.versions) > 1000
            assert each.versions == list(range(each.versions[0], each.versions[-1] + 1))
        assert pool.lists == lists


async def test_a_restarted_leader_serves_all_followers_before_their_cloud_slots() -> None:
    """A follower that waits for its slot goes back to its leader as soon as the leader answers."""
    async with pool_of(SIZE) as pool:
        pool.leading.fail(Link.REFUSED)
        pool.leading.link = Link.UP
        await asyncio.sleep(4.0)
        assert len(pool.leading.readers) == SIZE
        assert pool.are_current


async def test_a_cloud_that_comes_back_sees_no_more_of_a_pool_without_a_leader() -> None:
    async with pool_of(SIZE) as pool:
        pool.lose_the_cloud()
        pool.leading.fail(Link.REFUSED)
        await asyncio.sleep(60.0)
        pool.cloud.begun.clear()
        await pool.find_the_cloud(within=3.0)
        await asyncio.sleep(2 * SPREAD)
        assert len(pool.cloud.readers) == SIZE
        assert _most_in_a_second(pool.cloud) <= A_SECOND
        assert pool.are_current


async def test_followers_return_to_a_leader_spread_over_time_without_reading_the_cloud() -> None:
    async with pool_of(SIZE) as pool:
        pool.leading.fail(Link.REFUSED)
        await asyncio.sleep(3 * SPREAD)
        assert len(pool.cloud.readers) == SIZE
        pool.leading.begun.clear()
        pool.cloud.begun.clear()
        pool.leading.link = Link.UP
        await asyncio.sleep(3 * SPREAD)
        assert len(pool.leading.readers) == SIZE
        assert not pool.cloud.begun
        assert len({at for at, _ in pool.leading.begun}) > 10, "each draws its moment"
        assert pool.are_current


async def test_a_leader_that_is_elected_gets_all_followers_and_the_cloud_none() -> None:
    async with pool_of(SIZE) as pool:
        lists = pool.lists
        pool.elect(Role.FOLLOWER, pool.config._replace(leaders=(pool.next_leader,)))
        await asyncio.sleep(1.0)
        assert len(pool.leading_next.readers) == SIZE
        assert not pool.leading.readers
        assert not pool.cloud.begun
        assert pool.lists == lists, "every watch goes on from where it was"
        assert pool.are_current


@pytest.mark.parametrize("knows", [True, False])
async def test_a_pool_without_a_leader_reads_the_cloud_spread_over_slots(knows: bool) -> None:
    """After a power cut all nodes start at once, with the ConfigMap on their disks or without."""
    pool = Pool(SIZE)
    pool.leading.fail(Link.REFUSED)
    if knows:
        pool.elect(Role.FOLLOWER, pool.config)
    # How many of those do that do not know each other: each has its turn by its own name.
    a_second_by_chance = 10
    async with started(pool):
        await asyncio.sleep(ROLE_TIMEOUT + SPREAD + 1.0)
        assert len(pool.cloud.readers) == SIZE
        assert _most_in_a_second(pool.cloud) <= (A_SECOND if knows else a_second_by_chance)
        assert pool.are_current


@pytest.mark.parametrize("leader_notices", [0.5, 8.0])
async def test_a_restored_cloud_sees_no_more_of_a_pool_and_every_copy_is_the_restored_one(
    leader_notices: float,
) -> None:
    """Each node detects the restore by one source, and then requests all others."""

    async def notice(pool: Pool, within: float) -> None:
        """Let one node after another detect the restored cloud by one source."""
        for each in pool.followers:
            each.reflector.verify()
            await asyncio.sleep(within / SIZE)

    async with pool_of(SIZE) as pool:
        pool.restore(FIRST_VERSION // 2)
        pool.leading.version += 1  # what the backup has not
        noticing = asyncio.create_task(notice(pool, 3.0))
        await asyncio.sleep(leader_notices)
        pool.leading.restart(pool.version)
        await noticing
        await asyncio.sleep(ROLE_TIMEOUT + SPREAD + leader_notices)
        assert pool.are_current
        assert len(pool.leading.readers) == SIZE
        assert not pool.cloud.lists, "the leader has them"
        assert not pool.cloud.begun or _most_in_a_second(pool.cloud) <= A_SECOND


async def test_future_versions_of_a_leader_do_not_hide_events_of_the_cloud() -> None:
    """A kube-apiserver takes a watch from a version that it has not reached, and is silent."""
    async with pool_of(SIZE) as pool:
        pool.leading.publish(10 * FIRST_VERSION)
        await asyncio.sleep(1.0)
        _dissolve(pool)
        await asyncio.sleep(SPREAD + 5.0)
        assert pool.are_current
