"""How followers spread over leaders, and over time."""

from __future__ import annotations

from collections import Counter

import pytest

from addons.pool.pool_config import LeaderHub
from addons.pool.spread import SPREAD, cloud_delay, leader_order

NODES = [f"node-{number}" for number in range(300)]
LEADERS = [LeaderHub(name, f"10.0.0.{number}") for number, name in enumerate("abc")]


def test_followers_spread_over_all_leaders() -> None:
    first = Counter(leader_order(LEADERS, node)[0].node for node in NODES)
    assert all(count > 60 for count in first.values()), first


def test_only_the_followers_of_a_leader_that_leaves_move() -> None:
    for node in NODES:
        before = leader_order(LEADERS, node)
        after = leader_order(LEADERS[:2], node)
        assert after == [each for each in before if each in LEADERS[:2]]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 11, 25, 100, 300])
def test_no_more_than_a_tenth_of_the_pool_goes_to_the_cloud_in_a_second(count: int) -> None:
    """One node a second in a pool of fewer than ten, so the last of a small pool waits less than SPREAD."""
    nodes = NODES[:count]
    begins = sorted(cloud_delay(node, nodes) for node in nodes)
    a_second = max(1.0, count / 10)
    assert begins == pytest.approx([number / a_second for number in range(count)])
    assert begins[-1] < SPREAD


def test_a_node_that_does_not_know_the_others_waits_by_itself() -> None:
    waits = [cloud_delay(node, []) for node in NODES]
    assert all(0 <= each < SPREAD for each in waits)
    assert len(set(waits)) == len(NODES)
