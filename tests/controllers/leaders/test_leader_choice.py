"""The election of leaders, as a table and as properties."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cluster.kinds import Node
from controllers.cluster.node_pools import NodePool
from controllers.leaders import EDGE_WORKER, elect, leader_candidates, leader_status, serving_hubs
from kube.peers import MAX_HUBS, LeaderHub

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
POOL = NodePool("p", interconnected=True, generation=3)


def node(name: str, **fields: object) -> Node:
    made = Node(name, pool="p", ready=True, address=f"ip-{name}", annotations={"edgehub.io/peer": "10269"})
    return replace(made, **fields)  # type: ignore[arg-type]  # checked by the dataclass


def first(candidates: list[LeaderHub], count: int) -> list[LeaderHub]:
    return candidates[:count]


@pytest.mark.parametrize(
    ("changed", "fit"),
    [({}, True), ({"ready": False}, False), ({"address": ""}, False), ({"deleting": True}, False)],
)
def test_conditions_of_a_node_decide_whether_it_may_lead(changed: dict[str, object], fit: bool) -> None:
    assert bool(leader_candidates(POOL, [node("a", **changed)])) is fit


@pytest.mark.parametrize(
    ("changed", "serves"),
    [
        ({}, True),
        ({"ready": False}, True),
        ({"address": ""}, False),
        ({"deleting": True}, False),
        ({"annotations": {}}, False),
        ({"annotations": {"edgehub.io/peer": "0"}}, False),
        ({"address": "ip-b"}, False),
    ],
)
def test_the_hubs_of_a_pool_are_listed_whether_their_nodes_are_silent_or_not(
    changed: dict[str, object], serves: bool
) -> None:
    """Hubs look for each other when all nodes are silent to the cloud."""
    found = serving_hubs([node("b"), node("a", **changed), node("c")])
    others = ["b", "c"] if changed.get("address") != "ip-b" else ["c"]
    assert [each.node for each in found] == (["a"] if serves else []) + others


def test_the_listed_hubs_of_a_pool_are_bounded() -> None:
    assert len(serving_hubs(node(f"n{number}") for number in range(MAX_HUBS + 1))) == MAX_HUBS


@pytest.mark.parametrize(
    ("selector", "labels", "fit"),
    [
        ({"big": "yes"}, {"big": "yes", "more": "x"}, True),
        ({"big": "yes"}, {"big": "no"}, False),
        ({"big": "yes", "fast": "yes"}, {"big": "yes"}, False),
        ({}, {"big": "yes"}, False),
    ],
)
def test_the_selector_decides_whether_a_node_may_lead(
    selector: dict[str, str], labels: dict[str, str], fit: bool
) -> None:
    pool = replace(POOL, strategy="mark", selector=selector)
    assert bool(leader_candidates(pool, [node("a", labels=labels)])) is fit


SILENT: dict[str, object] = {"annotations": {}}
YURT: dict[str, object] = {"annotations": {}, "labels": {EDGE_WORKER: "true"}}
CLOSED: dict[str, object] = {"annotations": {"edgehub.io/peer": "0"}, "labels": {EDGE_WORKER: "true"}}
CLOUD: dict[str, object] = {"annotations": {}, "labels": {EDGE_WORKER: "false"}}


@pytest.mark.parametrize(
    ("nodes", "fit"),
    [
        ({"a": {}, "b": SILENT}, ["a"]),
        ({"a": SILENT, "b": SILENT}, []),
        ({"a": YURT, "b": YURT, "c": SILENT, "d": CLOUD}, ["a", "b"]),
        ({"a": YURT, "b": {}}, ["b"]),
        ({"a": YURT, "b": {"ready": False}}, []),
        ({"a": CLOSED, "b": {}}, ["b"]),
        ({"a": CLOSED, "b": YURT}, ["b"]),
    ],
    ids=[
        "announced",
        "no hub can",
        "YurtHubs",
        "YurtHub and hub",
        "YurtHub and a hub that is away",
        "a hub without a port",
        "YurtHub and a hub without a port",
    ],
)
def test_candidates_are_the_eligible_nodes_of_the_pool(
    nodes: dict[str, dict[str, object]], fit: list[str]
) -> None:
    candidates = leader_candidates(POOL, [node(name, **fields) for name, fields in nodes.items()])
    assert [each.node for each in candidates] == fit


@pytest.mark.parametrize(
    ("leaders", "nodes", "expected"),
    [
        ([], ["a", "b"], ["a"]),
        (["b"], ["a", "b"], ["b"]),
        (["c"], ["a", "b"], ["a"]),
        (["a", "b"], ["a", "b"], ["a"]),
        (["a"], [], []),
    ],
)
def test_an_eligible_leader_is_retained(leaders: list[str], nodes: list[str], expected: list[str]) -> None:
    pool = replace(POOL, leaders=tuple(LeaderHub(each, f"ip-{each}") for each in leaders))
    elected = elect(pool, [node(each) for each in nodes], first)
    assert [each.node for each in elected] == expected


def test_a_leader_with_a_changed_address_is_elected_anew() -> None:
    pool = replace(POOL, leaders=(LeaderHub("a", "old"),))
    assert elect(pool, [node("a")], first) == (LeaderHub("a", "ip-a"),)


def test_a_pool_without_an_election_has_no_leader() -> None:
    pool = NodePool("p", leaders=(LeaderHub("a", "ip-a"),))
    assert elect(pool, [node("a")], first) == ()


NAMES = st.sampled_from("abcdef")


@given(st.sets(NAMES), st.sets(NAMES), st.lists(NAMES, unique=True), st.integers(1, 4), st.randoms())
def test_elected_leaders_are_eligible_and_stable_in_any_pool(
    present: set[str], ready: set[str], leading: list[str], replicas: int, chance: random.Random
) -> None:
    pool = replace(POOL, replicas=replicas, leaders=tuple(LeaderHub(each, f"ip-{each}") for each in leading))
    nodes = [node(each, ready=each in ready) for each in sorted(present)]
    elected = elect(pool, nodes, chance.sample)
    names = [each.node for each in elected]
    fit = present & ready
    assert len(names) == len(set(names)) == min(replicas, len(fit))
    assert set(names) <= fit
    stayed = [each for each in leading if each in fit][:replicas]
    assert names[: len(stayed)] == stayed
    # A second election elects the same leaders.
    assert elect(replace(pool, leaders=elected), nodes, chance.sample) == elected


def test_the_status_is_written_only_if_it_differs() -> None:
    elected = (LeaderHub("a", "ip-a"),)
    status = leader_status(POOL, elected, NOW)
    assert status == {
        "leaderEndpoints": [{"nodeName": "a", "address": "ip-a"}],
        "leaderLastElectedTime": "2026-11-21T10:00:00Z",
        "leaderNum": 1,
        "conditions": [
            {
                "type": "LeaderReady",
                "status": "True",
                "observedGeneration": 3,
                "reason": "LeaderElected",
                "message": "1 of 1 leaders elected",
                "lastTransitionTime": "2026-11-21T10:00:00Z",
            }
        ],
    }
    written = replace(POOL, leaders=elected, leader_count=1, conditions=tuple(status["conditions"]))
    assert leader_status(written, elected, datetime(2027, 1, 1, tzinfo=UTC)) == {}


def test_without_candidates_the_condition_has_the_reason() -> None:
    [random_condition] = leader_status(POOL, (), NOW)["conditions"]
    [mark_condition] = leader_status(replace(POOL, strategy="mark"), (), NOW)["conditions"]
    assert random_condition["reason"] == mark_condition["reason"] == "NoCandidate"
    assert "leaderNodeLabelSelector" in mark_condition["message"]
    assert "leaderNodeLabelSelector" not in random_condition["message"]


def test_a_disabled_election_clears_leaders_and_preserves_other_conditions() -> None:
    other = {"type": "Other", "status": "True"}
    ready = {"type": "LeaderReady", "status": "True"}
    pool = NodePool("p", leaders=(LeaderHub("a", "x"),), leader_count=1, conditions=(other, ready))
    status = leader_status(pool, (), NOW)
    assert (status["leaderEndpoints"], status["leaderNum"], status["conditions"]) == (None, 0, [other])
    assert leader_status(NodePool("p"), (), NOW) == {}
