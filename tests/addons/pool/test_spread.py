"""How followers spread over leaders, and over time."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from addons.pool.pool_config import LeaderHub
from addons.pool.spread import SPREAD, CloudTurns, Turn, cloud_turn, leader_order
from kube.requests.request_info import ResourceType

NODES = [f"node-{number}" for number in range(300)]
SERVICES, SLICES = (
    ResourceType("", "v1", "services"),
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
)
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
    """One node a second in a pool of fewer than ten, so the nodes of a small pool wait less than SPREAD."""
    nodes = NODES[:count]
    turns = sorted(cloud_turn(node, nodes) for node in nodes)
    a_second = max(1.0, count / 10)
    assert [each.at for each in turns] == pytest.approx([number / a_second for number in range(count)])
    assert {each.period for each in turns} == {min(SPREAD, count) if count > 1 else 0.0}


@pytest.mark.parametrize(
    ("turn", "now", "wait"),
    [
        (Turn(2.0, 10.0), 100.0, 2.0),
        (Turn(2.0, 10.0), 102.0, 0.0),
        (Turn(2.0, 10.0), 103.0, 9.0),
        (Turn(2.0, 10.0), -3.0, 5.0),
        (Turn(0.0, 0.0), 103.0, 0.0),
    ],
)
def test_a_node_waits_for_its_next_turn(turn: Turn, now: float, wait: float) -> None:
    assert turn.wait(now) == wait


def test_a_node_that_does_not_know_the_others_waits_by_itself() -> None:
    turns = [cloud_turn(node, []) for node in NODES]
    assert all(0 <= each.at < SPREAD == each.period for each in turns)
    assert len(set(turns)) == len(NODES)


class Clocks:
    """A clock that runs from 50, beside a wall clock that runs from 1000; the turns of a node by them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = CloudTurns(lambda: 50.0 + self.now, lambda: 1000.0 + self.now)
        self.turns.turn = Turn(4.0, 10.0)

    def begin_at(self, type_: ResourceType = SERVICES, *, at_once: bool = False) -> float:
        return self.turns.begin_at(type_, at_once=at_once)


def test_a_turn_stays_until_it_is_taken_or_forgotten() -> None:
    clocks = Clocks()
    assert clocks.turns.next_in == math.inf
    assert clocks.begin_at() == 54.0
    clocks.now = 3.0
    assert (clocks.begin_at(), clocks.turns.next_in) == (54.0, 1.0)
    clocks.now = 5.0
    assert (clocks.begin_at(), clocks.turns.next_in) == (54.0, math.inf)
    clocks.turns.forget(SERVICES)
    assert clocks.begin_at() == 64.0


def test_a_turn_that_is_over_is_missed_unless_it_was_taken() -> None:
    clocks = Clocks()
    clocks.begin_at()
    assert not clocks.turns.has_missed(SERVICES)
    clocks.now = 5.0
    assert clocks.turns.has_missed(SERVICES)
    clocks.turns.take(SERVICES)
    assert not clocks.turns.has_missed(SERVICES)
    assert clocks.begin_at() == -math.inf, "it may read again without another turn"


def test_the_first_deputy_and_each_resource_have_turns_of_their_own() -> None:
    clocks = Clocks()
    assert clocks.begin_at(at_once=True) == 50.0
    assert clocks.begin_at(SLICES) == 54.0
    clocks.turns.forget(SERVICES)
    clocks.turns.take(SERVICES)
    assert not clocks.turns.has_missed(SERVICES), "it has never asked for one"
