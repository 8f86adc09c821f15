"""A whole pool whose followers lose their leader, on a virtual clock: what the cloud and the leader see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from addons.pool.pool_config import NOTHING_SHARED, Role
from addons.pool.spread import SPREAD
from tests.addons.support.pool_of_nodes import Link, Pool, PoolServer, pool_of

pytestmark = pytest.mark.looptime

SIZE = 39
"""Followers of a pool of forty nodes."""
A_SECOND = 4
"""How many of the pool may begin to read from the cloud within a second."""
NOTICED = 6.0
"""Seconds within which a follower notices a black hole."""


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
    pool.elect(Role.NONE, NOTHING_SHARED)


@pytest.mark.parametrize("lose", [_refuse, _swallow, _forget, _depose])
async def test_no_more_than_a_tenth_of_a_pool_a_second_begins_to_read_from_the_cloud(
    lose: Callable[[Pool], None],
) -> None:
    """Whether all notice at once that their leader serves no longer, or each at its own next probe."""
    async with pool_of(SIZE) as pool:
        lists = pool.lists
        lose(pool)
        await asyncio.sleep(NOTICED + SPREAD + 1.0)
        assert len({node for _, node in pool.cloud.begun}) == SIZE
        assert _most_in_a_second(pool.cloud) == A_SECOND
        assert pool.lists == lists, "every watch goes on from where it was"
        assert pool.are_current


async def test_a_leader_that_starts_anew_serves_all_before_their_turns_at_the_cloud() -> None:
    """A follower that waits for its turn goes back to its leader as soon as the leader answers."""
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


async def test_followers_go_back_to_a_leader_one_after_the_other_and_ask_the_cloud_nothing() -> None:
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
