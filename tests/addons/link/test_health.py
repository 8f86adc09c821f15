"""The health of a server as a state machine, and the choice between several servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from addons.link.health import RECOVERY_SUCCESSES, Cloud, Condition, ServerHealth
from addons.link.servers import (
    MAX_OWN_PARTITIONS,
    MAX_RELAYS,
    SHARED_PARTITIONS,
    PoolPartitions,
    Server,
    parse_relays,
    parse_server,
)
from addons.telemetry import metrics
from tests.addons.support.observed import value_of

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
def test_successes_and_failures_change_the_condition_of_a_server(
    seen: str, condition: Condition, usable: bool
) -> None:
    health = ServerHealth(A)
    for mark in seen:
        note: dict[str, Callable[[], bool]] = {
            "+": health.succeeded,
            "-": partial(health.failed, "refused"),
            "5": partial(health.note_error, "500"),
        }
        note[mark]()
    assert (health.condition, health.usable) == (condition, usable)
    assert bool(health.reason) is (condition in (Condition.DOWN, Condition.RECOVERING)), (
        "it tells of an outage alone"
    )


def test_a_success_or_failure_is_reported_when_it_changes_usability() -> None:
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
    assert cloud.find("https://a:6443") is cloud.servers[0]
    assert cloud.find("https://other:1") is None


def test_a_server_that_refuses_the_nodes_identity_is_down_for_the_node_only() -> None:
    cloud = Cloud([ServerHealth(A), ServerHealth(B)], "priority")
    cloud.servers[0].refuses_node = True
    assert (cloud.is_up, cloud.is_reachable, cloud.refusal, cloud.choose()) == (True, True, "", B)
    cloud.servers[1].refuses_node = True
    assert (cloud.is_up, cloud.is_reachable, cloud.choose()) == (False, True, A)
    assert "identity" in cloud.refusal
    for each in cloud.servers:
        each.failed("down")
    assert (cloud.is_up, cloud.is_reachable, cloud.refusal, cloud.choose()) == (False, False, "", None)


def test_an_outage_starts_when_the_last_server_goes_down() -> None:
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


def test_the_cloud_is_there_since_its_last_server_came_up() -> None:
    cloud = Cloud([ServerHealth(A), ServerHealth(B)], "round-robin")
    assert cloud.up_since == 0
    a, b = cloud.servers
    a.succeeded()
    first = cloud.up_since
    a.succeeded()
    a.failed("down")
    a.succeeded()
    assert cloud.up_since == first > 0, "one success does not end an outage"
    a.succeeded()
    assert cloud.up_since > first
    assert b.up_since == 0


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("https://10.0.0.1:6443", Server("https", "10.0.0.1", 6443)),
        ("https://cloud.example/", Server("https", "cloud.example", 443)),
        ("http://127.0.0.1:8080", Server("http", "127.0.0.1", 8080)),
        (" https://[fd00::1]:6443 ", Server("https", "fd00::1", 6443)),
    ],
)
def test_server_urls_are_parsed(text: str, server: Server) -> None:
    assert parse_server(text) == server
    assert parse_server(str(server)) == server


@pytest.mark.parametrize(
    "text",
    [
        "cloud:6443",
        "ftp://cloud",
        "https://",
        "https://cloud:99999",
        "https://u@cloud",
        "https://cloud/a?b=c",
    ],
)
def test_a_malformed_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="server"):
        parse_server(text)


def test_names_of_relays_are_invalid_as_node_names() -> None:
    found = parse_relays("https://relay.example:10269, https://[fd00::1]:10269,https://relay.example:10269,")
    assert [(str(each), each.node) for each in found] == [
        ("https://relay.example:10269", "relay relay.example:10269"),
        ("https://[fd00::1]:10269", "relay fd00::1:10269"),
    ]
    assert parse_relays("") == ()


@pytest.mark.parametrize(
    "text", ["http://10.0.0.9:1", "10.0.0.9", ",".join(f"https://r{n}:1" for n in range(MAX_RELAYS + 1))]
)
def test_a_malformed_relay_is_refused(text: str) -> None:
    before = value_of(metrics.BOUNDS_REACHED.labels("relays"))
    with pytest.raises(ValueError, match=r"relay|server"):
        parse_relays(text)
    assert value_of(metrics.BOUNDS_REACHED.labels("relays")) == before + (text.count(",") == MAX_RELAYS)


# -- partitions of tokens ------------------------------------------------------------------------------------------


def is_shared(partitions: PoolPartitions, token: str) -> bool:
    return partitions.partition(f"Bearer {token}").startswith("shared")


def test_a_token_has_its_own_pool_partition_once_a_server_has_accepted_it() -> None:
    partitions = PoolPartitions()
    assert is_shared(partitions, "a")
    partitions.answered("Bearer a", 200)
    partitions.answered("Bearer b", 403)
    partitions.answered("Bearer bad", 401)
    own = {partitions.partition(f"Bearer {token}") for token in "ab"}
    assert len(own) == 2
    assert not any(is_shared(partitions, token) for token in "ab")
    assert is_shared(partitions, "bad")


def test_a_refused_token_loses_its_pool_partition() -> None:
    partitions = PoolPartitions()
    partitions.answered("Bearer a", 200)
    partitions.answered("Bearer a", 401)
    assert is_shared(partitions, "a")


def test_unverified_tokens_get_no_connection_and_accepted_ones_a_bounded_number() -> None:
    partitions = PoolPartitions()
    for number in range(10_000):
        partitions.answered(f"Bearer {number}", 401)
    assert not partitions._accepted
    assert len({partitions.partition(f"Bearer {number}") for number in range(10_000)}) == SHARED_PARTITIONS
    partitions.answered("Bearer used", 200)
    for number in range(2 * MAX_OWN_PARTITIONS):
        partitions.answered(f"Bearer {number}", 200)
        partitions.answered("Bearer used", 200)
    assert len(partitions._accepted) == MAX_OWN_PARTITIONS
    assert not is_shared(partitions, "used")
    assert is_shared(partitions, "0")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("Basic {}", 403), ("Basic {}", 200), ("Bearer {}", 429), ("Bearer {}", 400), ("Bearer {}", 503)],
)
def test_a_malformed_authorization_header_opens_no_connection(authorization: str, status: int) -> None:
    """kube-apiserver ignores `Basic`: a pod could once open a connection for each invented header."""
    partitions = PoolPartitions()
    for number in range(2 * MAX_OWN_PARTITIONS):
        partitions.answered(authorization.format(number), status)
    assert (
        len({partitions.partition(authorization.format(number)) for number in range(10_000)})
        == SHARED_PARTITIONS
    )


def test_a_token_has_one_pool_partition_for_any_case_of_its_scheme() -> None:
    partitions = PoolPartitions()
    partitions.answered("Bearer a", 200)
    assert partitions.partition("bEARER a") == partitions.partition("Bearer a")


def test_tokens_are_not_stored_in_clear_text() -> None:
    partitions = PoolPartitions()
    partitions.answered("Bearer secret", 200)
    assert "secret" not in repr(vars(partitions))
