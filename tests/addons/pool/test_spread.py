"""How followers spread over leaders, and over time."""

from __future__ import annotations

from collections import Counter

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


def test_no_more_than_a_tenth_of_the_pool_goes_to_the_cloud_in_a_second() -> None:
    begins = sorted(cloud_delay(node, NODES) for node in NODES)
    assert begins[0] == 0
    assert begins[-1] < SPREAD
    for second in range(int(SPREAD)):
        assert sum(second <= each < second + 1 for each in begins) <= len(NODES) / 10


def test_a_node_that_does_not_know_the_others_waits_by_itself() -> None:
    waits = [cloud_delay(node, []) for node in NODES]
    assert all(0 <= each < SPREAD for each in waits)
    assert len(set(waits)) == len(NODES)
