"""The table of a server's conditions, and the choice among servers."""

from collections.abc import Callable
from functools import partial

import pytest

from addons.link.health import RECOVERY_SUCCESSES, Cloud, Condition, ServerHealth
from addons.link.servers import parse_server

A, B = parse_server("https://a:6443"), parse_server("https://b:6443")


@pytest.mark.parametrize(
    ("seen", "condition", "usable"),
    [
        ("", Condition.UNKNOWN, True),
        ("+", Condition.UP, True),
        ("-", Condition.DOWN, False),
        ("+-", Condition.DOWN, False),
        ("-+", Condition.RECOVERING, False),
        ("-++", Condition.UP, True),
        ("-+-+", Condition.RECOVERING, False),
        ("++-++", Condition.UP, True),
        ("+5", Condition.UP, True),
        ("+55", Condition.DOWN, False),
        ("+5+5", Condition.UP, True),
        ("-+5", Condition.DOWN, False),
    ],
)
def test_conditions(seen: str, condition: Condition, usable: bool) -> None:
    health = ServerHealth(A)
    for mark in seen:
        note: dict[str, Callable[[], bool]] = {
            "+": health.succeeded,
            "-": partial(health.failed, "refused"),
            "5": partial(health.erred, "500"),
        }
        note[mark]()
    assert (health.condition, health.usable) == (condition, usable)
    assert bool(health.reason) is (condition in (Condition.DOWN, Condition.RECOVERING)), (
        "it tells of an outage alone"
    )


def test_only_the_step_that_matters_is_told() -> None:
    health = ServerHealth(A)
    assert not health.succeeded(), "unknown was usable already"
    assert health.failed("timeout")
    assert health.reason == "timeout"
    assert not health.failed("timeout")
    assert [health.succeeded() for _ in range(RECOVERY_SUCCESSES)] == [False, True]


def test_round_robin_uses_all_that_are_up() -> None:
    cloud = Cloud([ServerHealth(A), ServerHealth(B)], "round-robin")
    assert {cloud.choose(), cloud.choose()} == {A, B}
    cloud.servers[0].failed("down")
    assert {cloud.choose() for _ in range(3)} == {B}
    cloud.servers[1].failed("down")
    assert cloud.choose() is None
    assert not cloud.is_up


def test_priority_uses_the_first_that_is_up() -> None:
    cloud = Cloud([ServerHealth(A), ServerHealth(B)], "priority")
    assert [cloud.choose(), cloud.choose()] == [A, A]
    cloud.servers[0].failed("down")
    assert cloud.choose() == B


def test_a_server_is_found_by_its_url() -> None:
    cloud = Cloud([ServerHealth(A)], "priority")
    assert cloud.named("https://a:6443") is cloud.servers[0]
    assert cloud.named("https://other:1") is None


def test_a_server_that_refuses_the_node_is_no_cloud_for_the_node_alone() -> None:
    cloud = Cloud([ServerHealth(A), ServerHealth(B)], "priority")
    cloud.servers[0].refuses_node = True
    assert (cloud.is_up, cloud.is_reachable, cloud.refusal, cloud.choose()) == (True, True, "", B)
    cloud.servers[1].refuses_node = True
    assert (cloud.is_up, cloud.is_reachable, cloud.choose()) == (False, True, A)
    assert "identity" in cloud.refusal
    for each in cloud.servers:
        each.failed("down")
    assert (cloud.is_up, cloud.is_reachable, cloud.refusal, cloud.choose()) == (False, False, "", None)


def test_a_cloud_is_away_since_its_last_server_went_down() -> None:
    cloud = Cloud([ServerHealth(A), ServerHealth(B)], "round-robin")
    cloud.servers[0].failed("down")
    assert cloud.seconds_away is None
    cloud.servers[1].failed("down")
    cloud.servers[0].down_since -= 100
    assert cloud.seconds_away is not None
    first = cloud.seconds_away
    assert first < 100
    cloud.servers[1].failed("down still")
    assert cloud.seconds_away >= first
