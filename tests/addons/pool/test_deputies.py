"""Which followers are deputies, how followers spread over leaders, and when each may read from the cloud."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from addons.pool.deputies import (
    ANNOUNCEMENT_TTL,
    ANY_ADDRESS,
    MAX_DEPUTIES,
    Deputies,
    deputies_for,
    parse_deputies,
)
from addons.pool.spread import SPREAD, CloudSlot, CloudSlots, cloud_slot, leader_order, rank
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

NODES = sorted((f"node-{number}" for number in range(9)), key=rank)
"""The nodes in the order of their cloud slots."""


class Leader:
    """A leader's state of its followers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.deputies = Deputies(lambda: self.now)

    def hear(self, *nodes: str) -> None:
        for each in nodes:
            self.deputies.announce(each, f"10.0.0.{NODES.index(each)}", "10.9.9.9")

    def named(self) -> list[str]:
        return [each.node for each in parse_deputies(self.deputies.named(NODES))]


def test_the_first_followers_by_rank_are_deputies_in_any_order_of_arrival() -> None:
    leader = Leader()
    for each in reversed(NODES):
        leader.hear(each)
    leader.hear(*NODES)
    assert leader.named() == NODES[:MAX_DEPUTIES]


def test_a_silent_or_removed_follower_is_no_deputy() -> None:
    leader = Leader()
    leader.hear(*NODES[:2])
    leader.now += ANNOUNCEMENT_TTL - 1
    leader.hear(*NODES[1:3])
    leader.now += 2
    assert leader.named() == NODES[1:2]
    leader.hear(NODES[2])
    assert leader.named() == NODES[1:3]
    assert leader.deputies.named(NODES[2:]) == f"{NODES[2]}/10.0.0.2"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("10.0.0.7", "a/10.0.0.7"),
        ("fd00:0::7", "a/fd00::7"),
        (ANY_ADDRESS, "a/10.0.0.1"),
        ("", ""),
        ("10.0.0.7/x,b/10.0.0.8", ""),
        ("fe80::7%x,b", ""),
    ],
)
def test_the_announced_address_of_a_follower_overrides_its_source_address(said: str, named: str) -> None:
    leader = Leader()
    leader.deputies.announce("a", said, "10.0.0.1")
    assert leader.deputies.named(["a"]) == named


@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "fd00::1"])
def test_addresses_of_connections_are_normalized_as_in_certificates(address: str) -> None:
    leader = Leader()
    leader.deputies.announce("a", ANY_ADDRESS, address)
    assert leader.deputies.named(["a"]) == f"a/{address.removeprefix('::ffff:')}"


def test_a_follower_accepts_a_bounded_number_of_deputies() -> None:
    text = ",".join(f"{each}/10.0.0.1" for each in NODES)
    assert [each.node for each in parse_deputies(text)] == NODES[:MAX_DEPUTIES]
    assert parse_deputies("a, /10.0.0.1,b/nowhere,") == ()


def test_two_deputies_never_read_from_each_other() -> None:
    named = [LeaderHub(each, f"10.0.0.{number}") for number, each in enumerate(NODES)]
    for number, node in enumerate(NODES):
        found = [each.node for each in deputies_for(node, named, NODES, can_serve=True)]
        assert found == NODES[:number]
        found = [each.node for each in deputies_for(node, named, NODES[1:], can_serve=False)]
        assert found == [each for each in NODES[1:] if each != node]


def test_the_first_of_two_deputies_at_one_address_is_used() -> None:
    named = [LeaderHub(each, "10.0.0.1") for each in NODES[:2]]
    assert deputies_for(NODES[5], named, NODES, can_serve=True) == named[:1]


CROWD = [f"node-{number}" for number in range(300)]
SERVICES, SLICES = (
    ResourceType("", "v1", "services"),
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
)
LEADERS = [LeaderHub(name, f"10.0.0.{number}") for number, name in enumerate("abc")]


def test_followers_spread_over_all_leaders() -> None:
    first = Counter(leader_order(LEADERS, node)[0].node for node in CROWD)
    assert all(count > 60 for count in first.values()), first


def test_only_followers_of_a_removed_leader_change_their_leader() -> None:
    for node in CROWD:
        before = leader_order(LEADERS, node)
        after = leader_order(LEADERS[:2], node)
        assert after == [each for each in before if each in LEADERS[:2]]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 11, 25, 100, 300])
def test_at_most_a_tenth_of_the_pool_reads_the_cloud_in_a_second(count: int) -> None:
    """A pool of fewer than ten nodes allows one node a second, so its nodes wait less than SPREAD."""
    nodes = CROWD[:count]
    slots = sorted(cloud_slot(node, nodes) for node in nodes)
    a_second = max(1.0, count / 10)
    assert [each.at for each in slots] == pytest.approx([number / a_second for number in range(count)])
    assert {each.period for each in slots} == {min(SPREAD, count) if count > 1 else 0.0}


@pytest.mark.parametrize(
    ("slot", "now", "wait"),
    [
        (CloudSlot(2.0, 10.0), 100.0, 2.0),
        (CloudSlot(2.0, 10.0), 102.0, 0.0),
        (CloudSlot(2.0, 10.0), 103.0, 9.0),
        (CloudSlot(2.0, 10.0), -3.0, 5.0),
        (CloudSlot(0.0, 0.0), 103.0, 0.0),
    ],
)
def test_a_node_waits_for_its_next_slot(slot: CloudSlot, now: float, wait: float) -> None:
    assert slot.wait(now) == wait


def test_nodes_that_do_not_know_the_pool_spread_over_the_period() -> None:
    slots = [cloud_slot(node, []) for node in CROWD]
    assert all(0 <= each.at < SPREAD == each.period for each in slots)
    assert len(set(slots)) == len(CROWD)


class Clocks:
    """A monotonic clock that starts at 50 and a wall clock that starts at 1000; the slots of a node by them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slots = CloudSlots(lambda: 50.0 + self.now, lambda: 1000.0 + self.now)
        self.slots.slot = CloudSlot(4.0, 10.0)

    def begin_at(self, type_: ResourceType = SERVICES, *, at_once: bool = False) -> float:
        return self.slots.begin_at(type_, at_once=at_once)


def test_a_slot_stays_until_it_is_used_or_expires() -> None:
    clocks = Clocks()
    assert clocks.slots.next_in == math.inf
    assert clocks.begin_at() == 54.0
    clocks.now = 3.0
    assert (clocks.begin_at(), clocks.slots.next_in) == (54.0, 1.0)
    clocks.now = 5.0
    assert (clocks.begin_at(), clocks.slots.next_in) == (54.0, math.inf)
    clocks.slots.forget(SERVICES)
    assert clocks.begin_at() == 64.0


def test_an_expired_slot_is_missed_unless_it_was_used() -> None:
    clocks = Clocks()
    clocks.begin_at()
    assert not clocks.slots.has_missed(SERVICES)
    clocks.now = 5.0
    assert clocks.slots.has_missed(SERVICES)
    clocks.slots.mark_used(SERVICES)
    assert not clocks.slots.has_missed(SERVICES)
    assert clocks.begin_at() == -math.inf, "it may read again without another slot"


def test_the_first_deputy_and_each_resource_have_separate_slots() -> None:
    clocks = Clocks()
    assert clocks.begin_at(at_once=True) == 50.0
    assert clocks.begin_at(SLICES) == 54.0
    clocks.slots.forget(SERVICES)
    clocks.slots.mark_used(SERVICES)
    assert not clocks.slots.has_missed(SERVICES), "it has never asked for one"
