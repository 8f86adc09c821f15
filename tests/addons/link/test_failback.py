"""The uplink in use, the failover to another uplink, and the failback to a preferred one."""

from __future__ import annotations

import pytest

from addons.link.failback import (
    FAILBACK_DELAY,
    LONGEST_FAILBACK_DELAY,
    STABLE_AFTER,
    FailbackTimer,
    UplinkSelector,
)
from addons.link.health import Cloud
from addons.link.servers import parse_server
from addons.link.uplinks.uplink import Uplink, parse_uplinks

A, B = parse_server("https://a:6443"), parse_server("https://b:6443")
FIRST, SECOND, THIRD = parse_uplinks("", "wan1,wan2,wan3")


class Node:
    """A node with two servers and three uplinks, and a clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cloud = Cloud.for_servers([A, B], [FIRST, SECOND, THIRD], "round-robin")
        self.left: list[Uplink] = []
        self.choice = UplinkSelector(self.cloud, self.left.append)

    def lose(self, *uplinks: Uplink) -> None:
        for each in self.cloud.servers:
            if each.server.uplink in uplinks:
                each.failed("no route")

    def come_back(self, uplink: Uplink) -> None:
        health = next(each for each in self.cloud.servers if each.server.uplink == uplink)
        health.succeeded()
        health.succeeded()

    def step(self, after: float = 0.0) -> float | None:
        self.now += after
        return self.choice.step(self.now)

    def used(self) -> set[Uplink | None]:
        return {found.uplink for _ in range(4) if (found := self.cloud.choose()) is not None}


def test_the_first_uplink_is_used_while_it_reaches_a_server() -> None:
    node = Node()
    assert (node.step(), node.used()) == (None, {FIRST})
    node.cloud.servers[0].failed("no route")
    assert (node.step(), node.used(), node.left) == (None, {FIRST}, [])


def test_failover_to_the_next_uplink_is_immediate() -> None:
    node = Node()
    node.lose(FIRST)
    assert (node.used(), node.cloud.is_up) == ({SECOND}, True)
    node.step()
    node.lose(SECOND)
    assert node.used() == {THIRD}
    node.step()
    assert node.left == [FIRST, SECOND]


def test_failback_to_a_preferred_uplink_happens_once_it_is_stable() -> None:
    node = Node()
    node.lose(FIRST)
    node.step()
    node.come_back(FIRST)
    assert (node.step(5.0), node.used()) == (FAILBACK_DELAY, {SECOND})
    node.lose(FIRST)
    assert (node.step(FAILBACK_DELAY - 1), node.used()) == (None, {SECOND}), (
        "it counts anew when it is lost meanwhile"
    )
    node.come_back(FIRST)
    assert node.step(2.0) == FAILBACK_DELAY
    assert (node.step(FAILBACK_DELAY), node.used()) == (None, {FIRST})
    assert node.left == [FIRST, SECOND], "what was open by the other one goes on by this one"
    node.lose(FIRST)
    node.step(1.0)
    node.come_back(FIRST)
    assert node.step() == 2 * FAILBACK_DELAY, "it did not last"


def test_the_only_uplink_that_reaches_a_server_is_used_at_once() -> None:
    node = Node()
    node.lose(FIRST)
    node.step()
    node.come_back(FIRST)
    node.step()
    node.lose(SECOND, THIRD)
    assert node.used() == {FIRST}
    node.step()
    assert node.left == [FIRST, SECOND]


def test_the_current_uplink_is_retained_if_none_reaches_a_server() -> None:
    node = Node()
    node.lose(FIRST, SECOND, THIRD)
    assert (node.step(), node.cloud.is_up, node.left) == (None, False, [])
    assert {each.server.uplink for each in node.cloud.paths} == {FIRST}
    node.come_back(THIRD)
    assert node.used() == {THIRD}


def test_uplinks_after_the_current_one_are_spare() -> None:
    node = Node()

    def spare() -> set[Uplink | None]:
        return {each.server.uplink for each in node.cloud.servers if node.cloud.is_spare(each)}

    assert spare() == {SECOND, THIRD}
    node.lose(FIRST)
    assert spare() == {THIRD}
    node.lose(SECOND, THIRD)
    assert spare() == set(), "each may be the one that comes back"


def test_a_node_without_uplinks_uses_its_routing_table() -> None:
    cloud = Cloud.for_servers([A, B], (), "priority", 2.0, 3.0)
    assert (cloud.uplinks, cloud.working_uplink, cloud.choose()) == ([], None, A)
    assert cloud.own_paths is cloud.servers
    assert [str(each.server) for each in Cloud.for_servers([A], [FIRST], "priority").servers] == [
        "https://a:6443 over wan1"
    ]
    assert not cloud.is_spare(cloud.servers[0])
    assert (cloud.servers[0].timeouts.interval, cloud.servers[0].timeouts.timeout) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("lasted", "holds"),
    [
        ([STABLE_AFTER], [FAILBACK_DELAY, FAILBACK_DELAY]),
        (
            [STABLE_AFTER - 1, 1, 0],
            [FAILBACK_DELAY, 2 * FAILBACK_DELAY, 4 * FAILBACK_DELAY, 8 * FAILBACK_DELAY],
        ),
        (
            [0] * 6,
            [
                FAILBACK_DELAY,
                2 * FAILBACK_DELAY,
                4 * FAILBACK_DELAY,
                8 * FAILBACK_DELAY,
                LONGEST_FAILBACK_DELAY,
                LONGEST_FAILBACK_DELAY,
                LONGEST_FAILBACK_DELAY,
            ],
        ),
        (
            [0, 0, STABLE_AFTER, 0],
            [FAILBACK_DELAY, 2 * FAILBACK_DELAY, 4 * FAILBACK_DELAY, FAILBACK_DELAY, 2 * FAILBACK_DELAY],
        ),
    ],
)
def test_each_unstable_recovery_delays_the_next_failback_longer(
    lasted: list[float], holds: list[float]
) -> None:
    timer, now, found = FailbackTimer(), 0.0, []
    for each in [*lasted, 0.0]:
        timer.lost(now)
        left = timer.seconds_left(now, is_up=True)
        assert left is not None
        found.append(left)
        now += left
        assert timer.seconds_left(now, is_up=True) == 0.0
        timer.used(now)
        now += each
    assert found == holds
