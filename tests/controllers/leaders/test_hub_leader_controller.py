"""Leaders of pools are elected and replaced, on the real API server."""

from __future__ import annotations

import pytest

from controllers.cluster.nodes import Node
from controllers.leaders.hub_leader_controller import pools_of
from tests.controllers.support.scene import POOLS, Scene, condition, leaders

pytestmark = [pytest.mark.real]


def test_random_elects_one_that_stays_until_it_fails(scene: Scene, manager: object) -> None:
    pool = scene.pool(interConnectivity=True)
    nodes = [scene.node(pool, address=f"10.0.1.{n}") for n in range(3)]
    scene.node(pool, ready=False)
    scene.node(pool, address="")
    elected = scene.sees(POOLS, pool, lambda obj: len(leaders(obj)) == 1 and len(obj["status"]["nodes"]) == 5)
    [leader] = leaders(elected)
    assert leader in nodes
    assert condition(elected, "LeaderReady")["reason"] == "LeaderElected"
    assert elected["status"]["leaderNum"] == 1

    others = [node for node in nodes if node != leader]
    scene.set_node(others[0], ready=False)
    still = scene.sees(POOLS, pool, lambda obj: obj["status"]["readyNodeNum"] == 3)
    assert leaders(still) == [leader]

    # The numbers of ready nodes stay as they are: one fails while another recovers.
    scene.set_node(others[0])
    scene.set_node(leader, ready=False)
    replaced = scene.sees(POOLS, pool, lambda obj: leaders(obj) not in ([], [leader]))
    assert leaders(replaced)[0] in others


def test_switched_off_there_are_no_leaders(scene: Scene, manager: object) -> None:
    pool = scene.pool(enableLeaderElection=True)
    node = scene.node(pool)
    scene.sees(POOLS, pool, lambda obj: leaders(obj) == [node])
    scene.admin.patch(f"{POOLS}/{pool}", {"spec": {"enableLeaderElection": False}})
    off = scene.sees(POOLS, pool, lambda obj: leaders(obj) == [])
    assert off["status"].get("conditions", []) == []
    assert off["status"]["leaderNum"] == 0


@pytest.mark.parametrize(
    "new",
    [
        Node("a", pool="p", ready=False, address="10.0.0.1"),
        Node("a", pool="p", ready=True, address="10.0.0.2"),
        Node("a", pool="p", ready=True, address="10.0.0.1", labels={"mark": "yes"}),
        Node("a", pool="p", ready=True, address="10.0.0.1", deleting=True),
        Node("a", pool="p", ready=True, address="10.0.0.1", annotations={"edgehub.io/peer": "10269"}),
        None,
    ],
)
def test_every_change_of_fitness_matters(new: Node | None) -> None:
    old = Node("a", pool="p", ready=True, address="10.0.0.1")
    assert pools_of(("", "a"), old, new) == {("", "p")}


def test_other_changes_do_not_matter() -> None:
    old = Node("a", pool="p", annotations={"a": "1"}, version="1")
    new = Node("a", pool="p", annotations={"a": "2"}, version="2")
    assert pools_of(("", "a"), old, new) == set()
