"""Leaders of a pool, the follower that is a deputy, and the times when each may go to the cloud."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.pool.deputies import ANY_ADDRESS, LIFE, MAX_DEPUTIES, Deputies, deputies_for, parse_deputies
from addons.pool.leaders import CLOUD, Choice, LeaderState, Probed, choose, read_probe
from addons.pool.spread import SPREAD, CloudSlot, CloudSlots, cloud_slot, leader_order, rank
from addons.requests.headers import AGE_HEADER, DEPUTIES_HEADER, LENDERS_HEADER, SHARES_HEADER
from kube.http.client import RawResponse
from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

NOW = 100.0


def leader(text: str) -> LeaderState:
    """`a` is usable, `a!` has failed, `a~` is used again later, `a9` lost the cloud 9 s ago."""
    made = LeaderState(LeaderHub(text[0], ""), ServerHealth(Server("https", "10.0.0.1", 10269, text[0])))
    made.failure = "refused" if "!" in text else ""
    made.usable_from = NOW + 1 if "~" in text else 0.0
    made.age = float(text[1:] or 0) if text[1:].isdecimal() else 0.0
    return made


@pytest.mark.parametrize(
    ("order", "cloud_is_up", "cloud_from", "expected"),
    [
        (["a", "b"], True, 0.0, "a"),
        (["a", "b"], False, 0.0, "a"),
        (["a!", "b"], True, 0.0, "b"),
        (["a~", "b"], True, 0.0, "b"),
        (["a9", "b"], True, 0.0, "b"),
        (["a9", "b!"], True, 0.0, CLOUD),
        (["a9", "b!"], True, NOW + 5, "a"),
        (["a9", "b3"], False, 0.0, "b"),
        (["a!", "b~"], True, NOW + 5, Choice(None, 1.0)),
        (["a!", "b~"], True, NOW + 0.5, Choice(None, 0.5)),
        (["a!", "b~"], True, NOW, CLOUD),
        (["a!", "b~"], False, NOW + 5, CLOUD),
        ([], True, 0.0, CLOUD),
        ([], True, NOW + 2, Choice(None, 2.0)),
    ],
)
def test_choice(order: list[str], cloud_is_up: bool, cloud_from: float, expected: str | Choice) -> None:
    states = [leader(each) for each in order]
    found = choose(states, NOW, cloud_is_up=cloud_is_up, cloud_from=cloud_from)
    if isinstance(expected, Choice):
        assert found == expected
    else:
        assert found.leader is not None
        assert (found.leader.leader.node, found.wait) == (expected, 0.0)


REFUSED = b'{"kind":"Status","message":"not in this pool"}'
LONE = b'{"kind":"Status","message":"local proxy does not support request(GET /livez)"}'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (RawResponse(404, {}, b""), Probed("", 0.0, ())),
        (RawResponse(200, {AGE_HEADER: "7"}, b"ok"), Probed("", 7.0, ())),
        (RawResponse(404, {AGE_HEADER: "-7"}, b""), Probed("", 0.0, ())),
        (RawResponse(404, {AGE_HEADER: "9" * 999}, b""), Probed("", 999999999.0, ())),
        (
            RawResponse(404, {DEPUTIES_HEADER: "d/10.0.0.4,,e"}, b""),
            Probed("", 0.0, (LeaderHub("d", "10.0.0.4"),)),
        ),
        (
            RawResponse(404, {LENDERS_HEADER: "l/10.0.0.5,nonsense"}, b""),
            Probed("", 0.0, (), (LeaderHub("l", "10.0.0.5"),)),
        ),
        (
            RawResponse(404, {SHARES_HEADER: "nodes,a.b,"}, b""),
            Probed("", 0.0, (), (), frozenset({"nodes", "a.b"})),
        ),
        (RawResponse(403, {}, REFUSED), Probed("not in this pool", 0.0, ())),
        # A YurtHub without a cloud, and a hub that says so of itself.
        (RawResponse(400, {}, LONE), Probed("", 1.0, ())),
        (RawResponse(400, {AGE_HEADER: "0"}, REFUSED), Probed("not in this pool", 0.0, ())),
        (RawResponse(400, {}, REFUSED), Probed("not in this pool", 0.0, ())),
    ],
)
def test_what_the_answer_to_a_probe_says(answer: RawResponse, expected: Probed) -> None:
    assert read_probe(answer) == expected


NODES = sorted((f"node-{number}" for number in range(9)), key=rank)
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


CROWD = [f"node-{number}" for number in range(300)]
SERVICES, SLICES = (
    ResourceType("", "v1", "services"),
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
)
LEADERS = [LeaderHub(name, f"10.0.0.{number}") for number, name in enumerate("abc")]


def test_followers_spread_over_all_leaders() -> None:
    first = Counter(leader_order(LEADERS, node)[0].node for node in CROWD)
    assert all(count > 60 for count in first.values()), first


def test_only_the_followers_of_a_leader_that_leaves_move() -> None:
    for node in CROWD:
        before = leader_order(LEADERS, node)
        after = leader_order(LEADERS[:2], node)
        assert after == [each for each in before if each in LEADERS[:2]]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 11, 25, 100, 300])
def test_no_more_than_a_tenth_of_the_pool_goes_to_the_cloud_in_a_second(count: int) -> None:
    """One node a second in a pool of fewer than ten, so the nodes of a small pool wait less than SPREAD."""
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


def test_a_node_that_does_not_know_the_others_waits_by_itself() -> None:
    slots = [cloud_slot(node, []) for node in CROWD]
    assert all(0 <= each.at < SPREAD == each.period for each in slots)
    assert len(set(slots)) == len(CROWD)


class Clocks:
    """A clock that runs from 50, beside a wall clock that runs from 1000; the slots of a node by them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slots = CloudSlots(lambda: 50.0 + self.now, lambda: 1000.0 + self.now)
        self.slots.slot = CloudSlot(4.0, 10.0)

    def begin_at(self, type_: ResourceType = SERVICES, *, at_once: bool = False) -> float:
        return self.slots.begin_at(type_, at_once=at_once)


def test_a_turn_stays_until_it_is_taken_or_forgotten() -> None:
    clocks = Clocks()
    assert clocks.slots.next_in == math.inf
    assert clocks.begin_at() == 54.0
    clocks.now = 3.0
    assert (clocks.begin_at(), clocks.slots.next_in) == (54.0, 1.0)
    clocks.now = 5.0
    assert (clocks.begin_at(), clocks.slots.next_in) == (54.0, math.inf)
    clocks.slots.forget(SERVICES)
    assert clocks.begin_at() == 64.0


def test_a_turn_that_is_over_is_missed_unless_it_was_taken() -> None:
    clocks = Clocks()
    clocks.begin_at()
    assert not clocks.slots.has_missed(SERVICES)
    clocks.now = 5.0
    assert clocks.slots.has_missed(SERVICES)
    clocks.slots.take(SERVICES)
    assert not clocks.slots.has_missed(SERVICES)
    assert clocks.begin_at() == -math.inf, "it may read again without another slot"


def test_the_first_deputy_and_each_resource_have_turns_of_their_own() -> None:
    clocks = Clocks()
    assert clocks.begin_at(at_once=True) == 50.0
    assert clocks.begin_at(SLICES) == 54.0
    clocks.slots.forget(SERVICES)
    clocks.slots.take(SERVICES)
    assert not clocks.slots.has_missed(SERVICES), "it has never asked for one"
