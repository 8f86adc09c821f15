"""A pool whose followers lose their leader, on a virtual clock: the load on the cloud and on the leader."""

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
"""The number of followers in a pool of forty nodes."""
A_SECOND = 4
"""The maximum number of nodes of the pool that may start to read from the cloud within a second."""


def _most_in_a_second(server: PoolServer) -> int:
    """Return the largest number of nodes that start to read from a server within any second. The window is 0.99 s, so
    that nodes which start exactly one second apart are not counted together."""
    begun = server.begun
    return max(len({node for at, node in begun if 0 <= at - first < 0.99}) for first, _ in begun)


def _refuse(pool: Pool) -> None:
    pool.leading.fail(Link.REFUSED)


def _swallow(pool: Pool) -> None:
    pool.leading.fail(Link.SWALLOWED)


def _forget(pool: Pool) -> None:
    """Restart the leader: its history starts with the next change."""
    pool.leading.oldest = pool.version + 1
    pool.leading.cut()


def _depose(pool: Pool) -> None:
    """Remove the pool's leader."""
    pool.elect(Role.NONE, pool.config._replace(leaders=()))


def _dissolve(pool: Pool) -> None:
    """Take the nodes out of all pools, or let the pool elect no leader: then no node knows the others."""
    pool.elect(Role.NONE, NO_POOL)


def _unshare(pool: Pool) -> None:
    """Change the resources that the pool shares."""
    pool.elect(Role.FOLLOWER, pool.config._replace(scope=()))


def _elect_a_dead_node(pool: Pool) -> None:
    pool.leading_next.fail(Link.REFUSED)
    pool.elect(Role.FOLLOWER, pool.config._replace(leaders=(pool.next_leader,)))


@pytest.mark.parametrize(
    "lose", [_refuse, _swallow, _forget, _depose, _dissolve, _unshare, _elect_a_dead_node]
)
async def test_at_most_a_tenth_of_a_pool_starts_to_read_from_the_cloud_in_a_second(
    lose: Callable[[Pool], None],
) -> None:
    """The followers notice the leader's failure all at once, or each at its own next probe."""
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
async def test_each_event_arrives_once_while_followers_switch_servers_in_a_burst(seed: int) -> None:
    """The followers switch between leaders and the cloud while fifty events arrive in a second."""

    async def _burst(pool: Pool) -> None:
        while True:
            await asyncio.sleep(0.02)
            pool.publish()

    class Heard:
        """Record the versions of a store's changes in order."""

        def __init__(self, store: Store) -> None:
            self.versions: list[int] = []
            store.listen(self)

        def changed(self, change: Change) -> None:
            self.versions.append(change.version)

        def advanced(self) -> None:
            """Ignore bookmarks."""

        def restarted(self) -> None:
            raise AssertionError("versions went backwards")

    def elect_the_first(pool: Pool) -> None:
        pool.elect(Role.FOLLOWER, pool.config)

    def elect_the_next(pool: Pool) -> None:
        pool.elect(Role.FOLLOWER, pool.config._replace(leaders=(pool.next_leader,)))

    def mend(pool: Pool) -> None:
        """Repair the link; data pending in a broken connection is lost."""
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
    """A follower that waits for its cloud slot returns to its leader as soon as the leader responds."""
    async with pool_of(SIZE) as pool:
        pool.leading.fail(Link.REFUSED)
        pool.leading.link = Link.UP
        await asyncio.sleep(4.0)
        assert len(pool.leading.readers) == SIZE
        assert pool.are_current


async def test_a_recovered_cloud_gets_spread_reads_from_a_pool_without_a_leader() -> None:
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


async def test_a_newly_elected_leader_gets_all_followers_and_the_cloud_none() -> None:
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
    """After a power cut all nodes start at once, with or without the ConfigMap on disk."""
    pool = Pool(SIZE)
    pool.leading.fail(Link.REFUSED)
    if knows:
        pool.elect(Role.FOLLOWER, pool.config)
    # The maximum for nodes that do not know each other: each has a slot by its own name.
    a_second_by_chance = 10
    async with started(pool):
        await asyncio.sleep(ROLE_TIMEOUT + SPREAD + 1.0)
        assert len(pool.cloud.readers) == SIZE
        assert _most_in_a_second(pool.cloud) <= (A_SECOND if knows else a_second_by_chance)
        assert pool.are_current


@pytest.mark.parametrize("leader_notices", [0.5, 8.0])
async def test_after_a_restore_reads_are_spread_and_every_copy_is_the_restored_one(
    leader_notices: float,
) -> None:
    """Each node detects the restore by one source, and then lists its other sources again."""

    async def notice(pool: Pool, within: float) -> None:
        """Let one node after another detect the restore by one source."""
        for each in pool.followers:
            each.reflector.verify()
            await asyncio.sleep(within / SIZE)

    async with pool_of(SIZE) as pool:
        pool.restore(FIRST_VERSION // 2)
        pool.leading.version += 1  # changes that the backup lacks
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
    """kube-apiserver accepts a watch from a future version, and sends nothing."""
    async with pool_of(SIZE) as pool:
        pool.leading.publish(10 * FIRST_VERSION)
        await asyncio.sleep(1.0)
        _dissolve(pool)
        await asyncio.sleep(SPREAD + 5.0)
        assert pool.are_current
