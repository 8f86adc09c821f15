"""The complete process on the real API server: election, failover, steady state, restarts, and random changes."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from controllers.triggers.update_trigger import read_record
from kube.json_type import Json
from tests.cloud.rest import MERGE_PATCH
from tests.controllers.conftest import StartManager
from tests.controllers.support.process import interpreter, program
from tests.controllers.support.scene import (
    CONFIG_MAPS,
    NODES,
    PATIENCE,
    POOL_LABEL,
    POOL_TOPOLOGY,
    POOLS,
    TOPOLOGY,
    Scene,
    condition,
    has_nodes,
    leaders,
)


def violations(scene: Scene, pools: list[str], grids: list[str]) -> list[str]:
    """Return every violated invariant of the cluster as text; [] if there is none."""
    nodes = scene.admin.get(NODES)["items"]
    found = [each for pool in pools for each in violations_in_pool(scene.admin.get(f"{POOLS}/{pool}"), nodes)]
    for node in nodes:
        if POOL_LABEL not in labels(node) and "colour" in labels(node):
            found.append(f"{node['metadata']['name']} is in no pool and has a pool's label")
    services = {each["metadata"]["name"]: each for each in scene.admin.get(scene.services)["items"]}
    for name in grids:
        grid = scene.admin.get(f"{scene.grids}/{name}")
        found += violations_in_grid(grid, services.get(f"{name}-svc"))
    return found


def violations_in_pool(pool: Json, nodes: list[Json]) -> Iterator[str]:
    name, spec, status = pool["metadata"]["name"], pool["spec"], pool.get("status", {})
    members = {node["metadata"]["name"]: node for node in nodes if labels(node).get(POOL_LABEL) == name}
    ready = {each for each, node in members.items() if node["status"]["conditions"][0]["status"] == "True"}
    counts = (status.get("nodes"), status.get("readyNodeNum"), status.get("unreadyNodeNum"))
    if counts != (sorted(members), len(ready), len(members) - len(ready)):
        yield f"{name}: {counts} and not {sorted(members)}, {sorted(ready)} of them ready"
    chosen = leaders(pool) if status else []
    wanted = min(len(ready), spec["leaderReplicas"]) if spec["interConnectivity"] else 0
    if len(set(chosen)) != wanted or not set(chosen) <= ready:
        yield f"{name}: led by {chosen}, {wanted} wanted of {sorted(ready)}"
    for each, node in members.items():
        if labels(node).get("colour") != spec.get("labels", {}).get("colour"):
            yield f"{each}: {labels(node)}, but its pool {name} says {spec.get('labels')}"


def violations_in_grid(grid: Json, service: Json | None) -> Iterator[str]:
    name, key = grid["metadata"]["name"], grid["spec"]["gridUniqKey"]
    if service is None:
        yield f"{name}: no service"
        return
    if json.loads(service["metadata"].get("annotations", {}).get("topologyKeys", "[]")) != [key]:
        yield f"{name}: not within {key}"
    have = [(each["port"], each.get("name", "")) for each in service["spec"]["ports"]]
    want = [(each["port"], each.get("name", "")) for each in grid["spec"]["template"]["ports"]]
    if have != want:
        yield f"{name}: ports {have} and not {want}"
    if service["spec"].get("selector") != grid["spec"]["template"].get("selector"):
        yield f"{name}: selector {service['spec'].get('selector')}"


def labels(obj: Json) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("labels", {})
    return found


pytestmark = [pytest.mark.real]

MERGE = {"Content-Type": MERGE_PATCH}


def test_failover_under_load_causes_no_overlapping_or_lost_writes(
    scene: Scene, start_manager: StartManager
) -> None:
    def writer_changes(mark: int) -> int:
        """Return how often the writing manager changed; the User-Agent names the process."""
        agents = [event.user_agent for event in scene.writes(mark)]
        return sum(1 for before, after in itertools.pairwise(agents) if before != after)

    class Load(threading.Thread):
        """Nodes that an administrator moves between pools all the time."""

        def __init__(self, scene: Scene, nodes: list[str], pools: list[str]) -> None:
            super().__init__(daemon=True)
            self._scene, self._nodes, self._pools = scene, nodes, pools
            self._done = threading.Event()
            self.moves = 0

        def run(self) -> None:
            while not self._done.wait(0.02):
                self._scene.relabel(random.choice(self._nodes), random.choice(self._pools))
                self.moves += 1

        def end(self) -> None:
            self._done.set()
            self.join()

    first = start_manager()
    first.wait_until_leading()
    second = start_manager()
    third = start_manager()
    assert not second.leads()
    pools = [scene.pool(interConnectivity=True) for _ in range(3)]
    nodes = [scene.node(random.choice(pools)) for _ in range(9)]
    mark = scene.cloud.audit_mark()
    load = Load(scene, nodes, pools)
    load.start()
    scene.until(lambda: load.moves > 10 and len(scene.writes(mark)) > 10)

    first.process.kill()
    while not (second.leads() or third.leads()):
        time.sleep(0.02)
    leader, other = (second, third) if second.leads() else (third, second)
    assert not other.leads()
    leader.wait_until(lambda: leader.metric("edgehub_manager_writes_total", code="200") > 0, "writing")
    leader.process.stop(PATIENCE)
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/edgehub-manager"
    # The manager released the Lease, so no successor waits for its expiry. Durations are tested on a virtual clock.
    assert scene.admin.get(lease)["spec"]["holderIdentity"] != leader.identity
    other.wait_until_leading()
    load.end()
    scene.node(pools[0])
    settled(scene, pools, [])

    # Three successive managers: none wrote after its successor had started.
    assert writer_changes(mark) == 2


def test_a_manager_suspended_beyond_its_lease_starts_no_write(
    scene: Scene, start_manager: StartManager
) -> None:
    first = start_manager()
    first.wait_until_leading()
    second = start_manager()
    service = scene.service()
    slices = [scene.slice(service, "a") for _ in range(200)]
    scene.barrier()
    # Suspend it while it writes triggers one after the other.
    annotations = {"metadata": {"annotations": {TOPOLOGY: POOL_TOPOLOGY}}}
    scene.admin.patch(f"{scene.services}/{service}", annotations)
    scene.sees(scene.slices, slices[0], scene.triggered)
    os.kill(first.process.pid, signal.SIGSTOP)
    second.wait_until_leading()
    # From here on the first manager has no Lease; its earlier requests have arrived.
    mark = scene.cloud.audit_mark()
    pool = scene.pool()
    node = scene.node(pool)
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [node])
    # The first manager resumes, still believes that it leads, and has writes to send.
    os.kill(first.process.pid, signal.SIGCONT)
    other = scene.node(pool)
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [node, other])
    first.wait_until(lambda: not first.leads(), "a standby")
    late = [each.uri for each in scene.writes(mark) if second.identity not in each.user_agent]
    # Writes are sent one by one: only the one in progress at the suspension may arrive.
    assert len(late) <= 1, late


def test_a_steady_cluster_gets_no_writes(scene: Scene, start_manager: StartManager) -> None:
    manager = start_manager()
    manager.wait_until_leading()
    pool = scene.pool(interConnectivity=True, labels={"a": "b"}, leaderReplicas=2)
    nodes = [scene.node(pool) for _ in range(3)]
    # Wait for all writes for these objects.
    status = scene.sees(
        POOLS,
        pool,
        lambda obj: (
            obj["status"]["nodes"] == nodes
            and obj["status"]["readyNodeNum"] == 3
            and condition(obj, "LeaderReady")["message"].startswith("2 of 2")
        ),
    )
    entries = ",".join(sorted(f"{each}/10.0.0.1" for each in leaders(status)))
    scene.sees(CONFIG_MAPS, f"leader-hub-{pool}", lambda obj: obj["data"]["leaders"] == entries)
    for node in nodes:
        scene.sees(NODES, node, lambda obj: obj["metadata"]["labels"]["a"] == "b")
    mark = scene.cloud.audit_mark()
    # Neither heartbeats nor a new leader cause writes.
    for node in nodes:
        heartbeat = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}]
        scene.admin.patch(f"{NODES}/{node}/status", {"status": {"conditions": heartbeat}})
    successor = start_manager()
    manager.process.stop()
    successor.wait_until_leading()
    scene.barrier()
    mine = [pool, *nodes]
    assert [each.uri for each in scene.writes(mark) if any(name in each.uri for name in mine)] == []


def test_a_pool_that_changed_while_no_manager_ran_triggers_hubs_at_the_next_start(
    scene: Scene, start_manager: StartManager
) -> None:
    def knows(record: Json, service: str) -> bool:
        seen = read_record(record)
        return seen is not None and (scene.namespace, service) in seen.topologies

    manager = start_manager()
    manager.wait_until_leading()
    changed, same = scene.pool(), scene.pool()
    stays, stayed = scene.node(changed), scene.node(same)
    joins = scene.node()
    scene.sees(POOLS, changed, has_nodes([stays]))
    scene.sees(POOLS, same, has_nodes([stayed]))
    service = scene.service(POOL_TOPOLOGY)
    touched = [scene.slice(service, node) for node in (stays, joins)]
    left = [scene.slice(service, stayed), scene.slice(scene.service(), joins)]
    retopologised = scene.service()
    scene.barrier()
    # The records of both controllers have the last service with a pool topology.
    for name in ("endpoints", "endpointslices"):
        record = f"edgehub-manager-servicetopology-{name}"
        scene.sees(CONFIG_MAPS, record, lambda obj: knows(obj, service))
    manager.process.stop(PATIENCE)

    scene.relabel(joins, changed)
    # A record has the topology of the last trigger.
    touched.append(scene.slice(retopologised, stayed))
    annotations = {"metadata": {"annotations": {TOPOLOGY: POOL_TOPOLOGY}}}
    scene.admin.patch(f"{scene.services}/{retopologised}", annotations)
    assert [each for each in touched if scene.trigger(scene.slices, each)] == []

    start_manager().wait_until_leading()
    for each in touched:
        scene.sees(scene.slices, each, scene.triggered)
    scene.barrier()
    assert [each for each in left if scene.trigger(scene.slices, each)] == []


@pytest.mark.timeout(240)
def test_the_manager_waits_for_the_api_server_and_resumes(scene: Scene, start_manager: StartManager) -> None:
    manager = start_manager()
    manager.wait_until_leading()
    pool = scene.pool()
    scene.cloud.stop_apiserver(crash=True)
    manager.wait_until(lambda: not manager.leads(), "aware that it leads no more")
    assert manager.status("/healthz") == 200
    scene.cloud.start_apiserver()
    # After its start the server answers 429 to lists and watches of custom resources.
    scene.until(lambda: scene.admin.request("GET", POOLS).status == 200)
    node = scene.node(pool)
    scene.until(lambda: scene.admin.get(f"{POOLS}/{pool}").get("status", {}).get("nodes") == [node])
    assert manager.leads()


def test_no_request_of_the_manager_is_forbidden(scene: Scene, start_manager: StartManager) -> None:
    mark = scene.cloud.audit_mark()
    manager = start_manager()
    manager.wait_until_leading()
    scene.barrier()
    manager.process.stop()
    asked = [each for each in scene.cloud.audit(mark) if each.user.endswith(":edgehub-manager")]
    assert len(asked) > 10
    assert [(each.verb, each.uri) for each in asked if each.code == 403] == []


class RandomChanges:
    """Random changes of pools, nodes, services and grids, one at a time."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._random = random.Random(seed)
        self.pools: list[str] = []
        self.grids: list[str] = []
        self._nodes: dict[str, bool] = {}

    def change(self) -> None:
        kinds = [self._pool, self._node, self._node, self._ready, self._move, self._move]
        self._random.choice([*kinds, self._labels, self._leave, self._grid, self._regrid, self._harm])()

    def _some(self, names: Iterable[str]) -> str:
        return self._random.choice(sorted(names))

    def _often(self) -> bool:
        return self._random.random() < 0.7

    def _pool(self) -> None:
        if len(self.pools) < 5:
            replicas = self._random.randint(1, 3)
            self.pools.append(self._scene.pool(interConnectivity=self._often(), leaderReplicas=replicas))

    def _node(self) -> None:
        ready = self._often()
        self._nodes[self._scene.node(self._some([*self.pools, ""]), ready=ready)] = ready

    def _ready(self) -> None:
        if self._nodes:
            node = self._some(self._nodes)
            self._nodes[node] = not self._nodes[node]
            self._scene.set_node(node, ready=self._nodes[node])

    def _move(self) -> None:
        if self._nodes:
            self._scene.relabel(self._some(self._nodes), self._some([*self.pools, ""]) or None)

    def _labels(self) -> None:
        if self.pools:
            labels = {"colour": self._some(["red", "green"])} if self._often() else None
            self._scene.admin.patch(f"{POOLS}/{self._some(self.pools)}", {"spec": {"labels": labels}})

    def _leave(self) -> None:
        if self._nodes:
            node = self._some(self._nodes)
            del self._nodes[node]
            self._scene.admin.delete(f"{NODES}/{node}")

    def _grid(self) -> None:
        if len(self.grids) < 5:
            self.grids.append(self._scene.grid())

    def _regrid(self) -> None:
        if self.grids:
            ports = [{"port": self._random.randint(1, 99), "name": "a"}, {"port": 100, "name": "b"}]
            spec = {
                "gridUniqKey": self._some("kl"),
                "template": {"ports": ports[: self._random.randint(1, 2)]},
            }
            self._scene.admin.patch(f"{self._scene.grids}/{self._some(self.grids)}", {"spec": spec})

    def _harm(self) -> None:
        """Change or delete the Service of a grid as another client."""
        if self.grids:
            path = f"{self._scene.services}/{self._some(self.grids)}-svc"
            if self._often():
                spec = {"selector": {"stray": "x"}, "ports": None}
                self._scene.admin.request("PATCH", path, body={"spec": spec}, headers=MERGE)
            else:
                self._scene.admin.request("DELETE", path)


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_end_in_the_state_of_an_oracle(
    scene: Scene, start_manager: StartManager, seed: int
) -> None:
    manager = start_manager()
    manager.wait_until_leading()
    chance = RandomChanges(scene, seed)
    for _ in range(80):
        chance.change()
    settled(scene, chance.pools, chance.grids)


def settled(scene: Scene, pools: list[str], grids: list[str]) -> None:
    try:
        scene.until(lambda: violations(scene, pools, grids) == [])
    except AssertionError as error:
        raise AssertionError(violations(scene, pools, grids)) from error


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--kubeconfig", "/none", "manager: kubeconfig /none: there is no such file"),
        ("--controllers", "nonsense", "there is no controller 'nonsense'"),
    ],
)
def test_an_invalid_option_or_kubeconfig_ends_the_manager_at_once(
    option: str, value: str, message: str
) -> None:
    done = subprocess.run([program(), option, value], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_verbose_affects_only_the_managers_own_packages() -> None:
    """At DEBUG the package kubernetes logs complete responses, including Secrets."""
    named = ("kubernetes.client.rest", "controllers.manager", "kube.http.client")
    code = (
        "import logging; from controllers.manager import main; main(['--verbose', '--kubeconfig', '/none']); "
        f"print(*(logging.getLogger(each).isEnabledFor(logging.DEBUG) for each in {named}))"
    )
    done = subprocess.run([interpreter(), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
