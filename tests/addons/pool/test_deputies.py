"""Which followers a leader names as its deputies, and from which of them a follower may read."""

from __future__ import annotations

import pytest

from addons.pool.deputies import ANY_ADDRESS, LIFE, MAX_DEPUTIES, Deputies, deputies_for, parse_deputies
from addons.pool.pool_config import LeaderHub
from addons.pool.spread import place

NODES = sorted((f"node-{number}" for number in range(9)), key=place)
"""In the order in which they go to the cloud."""


class Leader:
    """A leader's view of its followers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.deputies = Deputies(lambda: self.now)

    def hear(self, *nodes: str) -> None:
        for each in nodes:
            self.deputies.announce(each, f"10.0.0.{NODES.index(each)}", "10.9.9.9")

    def named(self) -> list[str]:
        return [each.node for each in parse_deputies(self.deputies.named(NODES))]


def test_the_first_followers_are_the_deputies_in_whatever_order_they_come() -> None:
    leader = Leader()
    for each in reversed(NODES):
        leader.hear(each)
    leader.hear(*NODES)
    assert leader.named() == NODES[:MAX_DEPUTIES]


def test_a_follower_that_says_nothing_any_more_or_leaves_the_pool_is_no_deputy() -> None:
    leader = Leader()
    leader.hear(*NODES[:2])
    leader.now += LIFE - 1
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
def test_the_address_is_what_the_follower_says_or_calls_from(said: str, named: str) -> None:
    leader = Leader()
    leader.deputies.announce("a", said, "10.0.0.1")
    assert leader.deputies.named(["a"]) == named


@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "fd00::1"])
def test_an_address_is_as_certificates_name_it_however_the_connection_shows_it(address: str) -> None:
    leader = Leader()
    leader.deputies.announce("a", ANY_ADDRESS, address)
    assert leader.deputies.named(["a"]) == f"a/{address.removeprefix('::ffff:')}"


def test_a_follower_takes_no_more_deputies_than_a_leader_may_have() -> None:
    text = ",".join(f"{each}/10.0.0.1" for each in NODES)
    assert [each.node for each in parse_deputies(text)] == NODES[:MAX_DEPUTIES]
    assert parse_deputies("a, /10.0.0.1,b/nowhere,") == ()


def test_no_two_deputies_read_from_each_other_whatever_leaders_name() -> None:
    named = [LeaderHub(each, f"10.0.0.{number}") for number, each in enumerate(NODES)]
    for number, node in enumerate(NODES):
        found = [each.node for each in deputies_for(node, named, NODES, can_serve=True)]
        assert found == NODES[:number]
        found = [each.node for each in deputies_for(node, named, NODES[1:], can_serve=False)]
        assert found == [each for each in NODES[1:] if each != node]


def test_of_two_deputies_at_one_address_the_first_counts() -> None:
    named = [LeaderHub(each, "10.0.0.1") for each in NODES[:2]]
    assert deputies_for(NODES[5], named, NODES, can_serve=True) == named[:1]
