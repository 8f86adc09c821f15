"""Leaders are elected, replaced and published, on the real API server."""

from __future__ import annotations

import pytest

from controllers.cluster.kinds import Node
from controllers.leaders import pool_of, pools_of
from tests.controllers.support.scene import CONFIG_MAPS, NODES, POOLS, Scene, condition, leaders

pytestmark = [pytest.mark.real]


def test_a_random_election_retains_its_leader_until_it_fails(scene: Scene, manager: object) -> None:
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

    # The number of ready nodes stays the same: one fails while another recovers.
    scene.set_node(others[0])
    scene.set_node(leader, ready=False)
    replaced = scene.sees(POOLS, pool, lambda obj: leaders(obj) not in ([], [leader]))
    assert leaders(replaced)[0] in others


def test_a_pool_has_no_leaders_after_its_election_is_disabled(scene: Scene, manager: object) -> None:
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
def test_every_change_of_eligibility_enqueues_the_pool(new: Node | None) -> None:
    old = Node("a", pool="p", ready=True, address="10.0.0.1")
    assert pools_of(("", "a"), old, new) == {("", "p")}


def test_an_unrelated_change_of_a_node_enqueues_no_pool() -> None:
    old = Node("a", pool="p", annotations={"a": "1"}, version="1")
    new = Node("a", pool="p", annotations={"a": "2"}, version="2")
    assert pools_of(("", "a"), old, new) == set()


ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"


@pytest.mark.parametrize("length", [0, 63])
def test_the_leaders_configmap_is_repaired_and_written_only_on_changes(
    scene: Scene, manager: object, length: int
) -> None:
    pool = scene.pool(scene.name("pool").ljust(length, "x"), interConnectivity=True)
    name = f"leader-hub-{pool}"
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["leaders"] == "")
    scene.admin.patch(f"{CONFIG_MAPS}/{name}", {"data": {"leaders": "liar/10.0.0.1"}})
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["leaders"] == "")
    scene.admin.delete(f"{CONFIG_MAPS}/{name}")
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["leaders"] == "")

    mark = scene.cloud.audit_mark()
    # A node whose hub is unreachable changes the pool's status, but not the ConfigMap.
    node = scene.node(pool, address="")
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [node])
    scene.admin.delete(f"{NODES}/{node}")
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [])
    assert [each.uri for each in scene.writes(mark) if name in each.uri] == []


def test_the_configmap_of_a_pool_lists_its_hubs(scene: Scene, manager: object) -> None:
    """The list includes hubs of silent nodes, which look for each other in an outage."""
    pool = scene.pool(interConnectivity=True)
    first = scene.node(pool, address="10.0.3.1")
    second = scene.node(pool, address="10.0.3.2", ready=False)
    name, both = f"leader-hub-{pool}", f"{first}/10.0.3.1,{second}/10.0.3.2"
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["hubs"] == both)
    scene.admin.delete(f"{NODES}/{second}")
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["hubs"] == f"{first}/10.0.3.1")


def test_a_kubelet_cannot_add_a_leader_by_its_address(scene: Scene, manager: object) -> None:
    pool = scene.pool(interConnectivity=True, leaderReplicas=2)
    victim, forger = scene.node(pool, address="10.0.3.1"), scene.node(pool, address="10.0.3.2")
    name = f"leader-hub-{pool}"
    both = f"{victim}/10.0.3.1,{forger}/10.0.3.2"
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["leaders"] == both)
    kubelet = scene.cloud.client(scene.cloud.authority.issue_node(forger))
    addresses = [{"type": "InternalIP", "address": f"10.0.3.2,{victim}/6.6.6.6"}]
    kubelet.patch(f"{NODES}/{forger}/status", {"status": {"addresses": addresses}})
    scene.sees(CONFIG_MAPS, name, lambda obj: obj["data"]["leaders"] == f"{victim}/10.0.3.1")


@pytest.mark.parametrize(("name", "keys"), [("leader-hub-hangzhou", [("", "hangzhou")]), ("another", [])])
def test_a_config_maps_name_contains_its_pool(name: str, keys: list[tuple[str, str]]) -> None:
    assert pool_of(("kube-system", name), None, {"metadata": {}}) == keys
    assert pool_of(("kube-system", name), {}, {}) == []


def test_the_role_is_updated_with_the_pools(scene: Scene, manager: object) -> None:
    pool = scene.pool(interConnectivity=True)
    scene.sees(
        ROLES, "edgehub:leader-hubs", lambda obj: f"leader-hub-{pool}" in obj["rules"][0]["resourceNames"]
    )
    node = scene.cloud.client(scene.cloud.authority.issue_node("edge"))
    scene.until(lambda: node.request("GET", f"{CONFIG_MAPS}/leader-hub-{pool}").status == 200)
    assert node.request("GET", CONFIG_MAPS).status == 403

    scene.admin.delete(f"{POOLS}/{pool}")
    scene.sees(
        ROLES,
        "edgehub:leader-hubs",
        lambda obj: not obj["rules"] or f"leader-hub-{pool}" not in obj["rules"][0]["resourceNames"],
    )


def test_a_changed_role_is_repaired(scene: Scene, manager: object) -> None:
    scene.pool()
    scene.sees(ROLES, "edgehub:leader-hubs", lambda obj: obj["rules"])
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    scene.admin.patch(f"{ROLES}/edgehub:leader-hubs", {"rules": everything})
    scene.sees(ROLES, "edgehub:leader-hubs", lambda obj: obj["rules"] != everything)
