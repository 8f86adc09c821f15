"""The load of `scripts/bench --manager`: the manager starts in a big cluster whose pools have no status yet."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from kube.json_type import Json
from scripts.benchmark.load import (
    ENDPOINT_SLICES,
    SERVICES,
    cpu_seconds,
    new_cloud,
    p99,
    post_all,
    print_rows,
    resident_megabytes,
    slice_of,
    waiting,
)
from tests.cloud.real import RealCloud
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import (
    ACCOUNT,
    NODES,
    PEER,
    POOL_LABEL,
    POOL_TOPOLOGY,
    POOLS,
    TOPOLOGY,
    WRITES,
)

MANIFESTS = Path(__file__).parents[2] / "controllers" / "manifests"
ENDPOINTS = 10
QUIET = 1.0
"""Seconds without work in any controller that count as a steady state."""
HEARTBEATS = 30.0
"""Seconds of steady state to measure, in which every node reports once."""
AWAY = 60.0
"""Seconds without an API server."""
PATIENCE = 300.0
"""Seconds. The longest wait for a step."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the cluster, and the number of nodes that the bench relabels in sequence."""

    nodes: int = 1000
    pools: int = 50
    services: int = 2000
    slices: int = 5000
    relabels: int = 200


class Watching(threading.Thread):
    """A watch of the pools that stores the nodes in the status of each."""

    def __init__(self, cloud: RealCloud) -> None:
        super().__init__(daemon=True)
        self._cloud = cloud
        self._seen: dict[str, set[str]] = {}
        self._changed = threading.Condition()

    def run(self) -> None:
        events = self._cloud.admin.watch(POOLS, timeout=PATIENCE)
        with closing(events), suppress(ConnectionError):  # the bench kills the API server at the end
            for event in events:
                with self._changed:
                    meta, status = event.object["metadata"], event.object.get("status", {})
                    self._seen[meta["name"]] = set(status.get("nodes") or [])
                    self._changed.notify_all()

    def wait_for(self, pool: str, node: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: node in self._seen.get(pool, ()), PATIENCE):
                raise TimeoutError(f"{node} is not in {pool}")


def measure(size: Size) -> None:
    """Measure each part in sequence, on a control plane of its own, and print the figures."""
    with new_cloud() as (cloud, folder):
        fill(cloud, size)
        account = kubeconfig(cloud)
        mark, began = cloud.audit_mark(), time.perf_counter()
        with ManagerProcess(folder, account, name="first") as first:
            start = steady(first) - began
            start_cpu, start_writes = cpu_seconds(first.process.pid), writes(cloud, mark)
            steady_writes = heartbeats(cloud, size)
            relabels = relabel(cloud, size)
            steady(first)
            resident = resident_megabytes(first.process.pid)
            without_server = away(cloud, first)
            with ManagerProcess(folder, account, name="second") as second:
                first.process.stop()
                after_term = waiting(second.leads, PATIENCE)
                with ManagerProcess(folder, account, name="third") as third:
                    second.process.kill()
                    after_kill = waiting(third.leads, PATIENCE)
    print(
        f"{size.nodes} nodes, {size.pools} pools, {size.services} services, {size.slices} slices; "
        f"{size.relabels} nodes relabelled"
    )
    print_rows(
        (
            ("start to steady, nothing counted before, s", start),
            ("CPU for that, s", start_cpu),
            ("writes for that", start_writes),
            ("node relabelled to NodePool status, p50 ms", statistics.median(relabels) * 1e3),
            ("node relabelled to NodePool status, p99 ms", p99(relabels) * 1e3),
            ("writes while only heartbeats come", steady_writes),
            ("resident after that, MB", resident),
            *without_server,
            ("another leads after SIGTERM, s", after_term),
            ("another leads after kill -9, s", after_kill),
        )
    )


def fill(cloud: RealCloud, size: Size) -> None:
    """Create the cluster. Every second Service keeps its traffic in the pool. A slice has endpoints in two pools."""
    cloud.apply(MANIFESTS)
    post_all(cloud, POOLS, map(pool, range(size.pools)))
    post_all(cloud, NODES, (node(n, size) for n in range(size.nodes)))
    post_all(cloud, SERVICES, map(service, range(size.services)))
    post_all(cloud, ENDPOINT_SLICES, (endpoint_slice(n, size) for n in range(size.slices)))


def pool(number: int) -> Json:
    spec = {"interConnectivity": True}
    kind = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool"}
    return {**kind, "metadata": {"name": f"pool-{number}"}, "spec": spec}


def node(number: int, size: Size) -> Json:
    labels = {POOL_LABEL: f"pool-{number % size.pools}"}
    address = f"10.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
    return {
        "metadata": {"name": f"node-{number}", "labels": labels, "annotations": {PEER: "10269"}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def service(number: int) -> Json:
    annotations = {TOPOLOGY: POOL_TOPOLOGY} if number % 2 else {}
    return {
        "metadata": {"name": f"service-{number}", "annotations": annotations},
        "spec": {"ports": [{"port": 80}], "clusterIP": "None"},
    }


def endpoint_slice(number: int, size: Size) -> Json:
    # The pool of a node is its number modulo the pools. So half of these nodes are in one pool, half in the next.
    nodes = [(number + pod % 2 + pod // 2 * size.pools) % size.nodes for pod in range(ENDPOINTS)]
    endpoints: list[Json] = [
        {"addresses": [f"10.{number % 200}.{number // 200}.{pod + 1}"], "nodeName": f"node-{on}"}
        for pod, on in enumerate(nodes)
    ]
    return slice_of(f"service-{number % size.services}", endpoints, name=f"slice-{number}")


def kubeconfig(cloud: RealCloud) -> Path:
    """Write the kubeconfig of a service account with the rights that the manifests grant."""
    return cloud.kubeconfig("account", token=cloud.token("kube-system", "edgehub-manager"))


def steady(manager: ManagerProcess) -> float:
    """Return when the last controller became idle, by time.perf_counter()."""
    manager.wait_until_leading()
    began = since = time.perf_counter()
    while time.perf_counter() - since < QUIET:
        if manager.metric("edgehub_manager_busy") or not manager.leads():
            since = time.perf_counter()
        if since - began > PATIENCE:
            raise TimeoutError("the manager does not come to rest")
        time.sleep(0.05)
    return since


def writes(cloud: RealCloud, mark: int) -> int:
    """Count the manager's writes since a position in the audit log, except to its Lease."""
    own = (event for event in cloud.audit(mark) if event.user == ACCOUNT and event.stage == "RequestReceived")
    return sum(event.verb in WRITES and "/leases" not in event.uri for event in own)


def heartbeats(cloud: RealCloud, size: Size) -> int:
    """Count the manager's writes while only nodes' heartbeats happen."""
    mark, began = cloud.audit_mark(), time.perf_counter()
    for number in range(size.nodes):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
        cloud.admin.patch(f"{NODES}/node-{number}/status", {"status": {"conditions": [ready]}})
        time.sleep(max(0.0, HEARTBEATS * (number + 1) / size.nodes - (time.perf_counter() - began)))
    return writes(cloud, mark)


def relabel(cloud: RealCloud, size: Size) -> list[float]:
    """Measure, node by node, the seconds from a new pool label until the new pool lists the node."""
    watching = Watching(cloud)
    watching.start()
    seconds = []
    for number in range(size.relabels):
        name, pool = f"node-{number}", f"pool-{(number + 1) % size.pools}"
        began = time.perf_counter()
        cloud.admin.patch(f"{NODES}/{name}", {"metadata": {"labels": {POOL_LABEL: pool}}})
        watching.wait_for(pool, name)
        seconds.append(time.perf_counter() - began)
    return seconds


def away(cloud: RealCloud, manager: ManagerProcess) -> list[tuple[str, float]]:
    """Kill the API server, and restart it with an unchanged cluster."""
    cloud.stop_apiserver(crash=True)
    time.sleep(AWAY)
    resident = resident_megabytes(manager.process.pid)
    mark, began = cloud.audit_mark(), time.perf_counter()
    cloud.start_apiserver()
    back = steady(manager) - began
    return [
        (f"resident after {AWAY:.0f} s without API server, MB", resident),
        ("resident at most, MB", resident_megabytes(manager.process.pid, "VmHWM")),
        ("API server started again to steady, s", back),
        ("writes for that", writes(cloud, mark)),
    ]
