"""The load of `scripts/bench --fleet`: bytes of a thousand hubs on the cloud's links, when idle and in a rolling
restart.

Each event is recorded from a real kube-apiserver, and counted once for each stream that carries it. HTTP and TLS
framing is not counted, nor is each node's own traffic (`scripts/bench --links`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controllers.cluster.kinds import Node
from controllers.pools import labels_of_nodes
from kube.json_type import Json
from kube.requests.node_labels import BUCKETS, NODE_LABELS, bucket_of
from kube.requests.node_pools import POOL_LABEL
from kube.wire.encoding import Encoding
from scripts.benchmark.load import ENDPOINT_SLICES, SLICES, new_cloud
from scripts.benchmark.pools.links import (
    CODEC,
    POOLS,
    Cost,
    Traffic,
    differences,
    endpoint_of,
    new_slice,
    plain,
    watched,
)
from tests.cloud.real import RealCloud

HUBS = 1000
PODS = 50
"""The pods of the rolling restart, in one slice."""
STATUSES = 24 * 60 // 5
"""Status reports of a node per day, one every five minutes."""
BOOKMARKS = 24 * 60
"""Bookmarks of a watch per day."""
RECORDED = 50
"""Number of statuses that are recorded."""
NODES = "/api/v1/nodes"
METADATA = f"{Encoding.PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LABELS = {
    "kubernetes.io/arch": "arm64",
    "kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "arm64",
    "beta.kubernetes.io/os": "linux",
    "topology.kubernetes.io/zone": "zone-1",
}
KIND = Path(__file__).parents[3] / "controllers" / "manifests" / "nodelabels.yaml"


@dataclass(frozen=True, slots=True)
class Row:
    """One cause of events: the bytes of an event as the cloud sends it and as a difference, and the number of
    events."""

    name: str
    plain: float
    difference: float
    events: int

    def megabytes(self) -> tuple[float, float, float]:
        """Return the megabytes over all links of the cloud: without pools, with a leader in each pool, and with a relay
        for the leaders."""
        count = self.events / 1e6
        return self.plain * count * HUBS, self.plain * count * POOLS, self.difference * count * POOLS


def measure() -> None:
    with new_cloud() as (cloud, _):
        statuses = mean(statuses_of_nodes(cloud))
        bookmark, label = bookmark_of(cloud), label_change(cloud)
        restart = rolling_restart(cloud)
    slices = restart, plain(restart), differences(restart)
    nodes = HUBS * STATUSES
    rest = [
        Row("a status, as metadata: no NodeLabels", *statuses, nodes),
        Row("a status, with NodeLabels", 0, 0, nodes),
        # Three watches of a hub may come from its leader: Services, EndpointSlices, NodeLabels.
        Row("bookmarks of three watches", bookmark, bookmark, 3 * BOOKMARKS),
        Row("a label of a node, each node once", label, label, HUBS),
    ]
    report(f"at rest, a day: {HUBS} hubs in {POOLS} pools, MB over all links of the cloud", rest)
    report(f"a rolling restart of {PODS} pods", [row_of(*slices)])


def row_of(traffic: Traffic, plain_cost: Cost, difference_cost: Cost) -> Row:
    count = len(traffic.events)
    return Row("an update of the slice", plain_cost.events / count, difference_cost.events / count, count)


def report(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    print(f"{'':42}{'B':>7}{'B diff.':>9}{'events':>8}{'plain':>12}{'leaders':>11}{'relay':>9}")
    for row in rows:
        cells = "".join(
            f"{figure:{width}.2f}" for figure, width in zip(row.megabytes(), (12, 11, 9), strict=True)
        )
        print(f"{row.name:42}{row.plain:7.0f}{row.difference:9.0f}{row.events:8}{cells}")


def mean(traffic: Traffic) -> tuple[float, float]:
    """Return the mean bytes of an event, as the cloud sends it and as a difference."""
    count = len(traffic.events)
    return plain(traffic).events / count, differences(traffic).events / count


def statuses_of_nodes(cloud: RealCloud) -> Traffic:
    """Return status writes as a kubelet sends them, as a metadata watch shows them."""
    cloud.admin.post(NODES, {"metadata": {"name": "fleet-1", "labels": LABELS}})
    state, begin = watched_from(cloud, NODES, METADATA)
    for number in range(RECORDED):
        time = f"2026-11-23T{number // 60:02}:{number % 60:02}:00Z"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": time}
        cloud.admin.patch(f"{NODES}/fleet-1/status", {"status": {"conditions": [ready]}})
    return Traffic("nodes", state, watched(cloud, "fleet", NODES, METADATA, resourceVersion=begin))


def watched_from(cloud: RealCloud, path: str, accept: str) -> tuple[list[bytes], str]:
    """Return the frames of the current state, and its version."""
    accept = accept.replace("Metadata;", "MetadataList;")
    page = CODEC.decode_list(cloud.admin.request("GET", path, headers={"Accept": accept}).body)
    raws = (raw for raw in page.items if CODEC.peek(raw).name.startswith("fleet-"))
    return [CODEC.encode_event("ADDED", page.api_version, page.kind, raw) for raw in raws], str(page.version)


def bookmark_of(cloud: RealCloud) -> float:
    """Return the bytes of a bookmark, which kube-apiserver also sends some seconds before a watch ends."""
    query = {"watch": "true", "timeoutSeconds": "15", "allowWatchBookmarks": "true", "resourceVersion": "0"}
    answer = cloud.admin.request("GET", NODES, query=query, headers={"Accept": METADATA})
    *_, last = CODEC.frames().feed(answer.body)
    assert last.type == "BOOKMARK", last.type
    return len(CODEC.encode_event(last.type, last.api_version, last.kind, last.raw))


def label_change(cloud: RealCloud) -> float:
    """Return the bytes of an event of NodeLabels in a cluster of this size."""
    cloud.apply(KIND)
    path = NODE_LABELS.path()
    made = cloud.admin.post(path, bucket("zone-1"))
    version = made["metadata"]["resourceVersion"]
    cloud.admin.patch(f"{path}/00", {"groups": bucket("zone-2")["groups"]})
    query = {"watch": "true", "timeoutSeconds": "3", "resourceVersion": str(version)}
    return len(cloud.admin.request("GET", path, query=query).body)


def bucket(zone: str) -> Json:
    """Return the first NodeLabels object, with one node in this zone."""
    names = [name for number in range(HUBS) if bucket_of(name := f"edge-site-{number:04}") == "00"]
    assert len(names) < 2 * HUBS / BUCKETS
    nodes = (
        Node(
            name,
            labels={
                "kubernetes.io/hostname": name,
                POOL_LABEL: f"pool-{number % POOLS}",
                "topology.kubernetes.io/zone": "zone-1" if number else zone,
            },
        )
        for number, name in enumerate(names)
    )
    return labels_of_nodes("00", nodes, [])


def rolling_restart(cloud: RealCloud) -> Traffic:
    """Restart pods one by one: the new pod is created and becomes ready, then the old one terminates and is deleted."""
    chance = random.Random(7)
    obj = new_slice("fleet-web", PODS, chance)
    cloud.admin.post(ENDPOINT_SLICES, obj)
    state, begin = watched_from(cloud, SLICES, Encoding.PROTOBUF)
    for endpoints in steps(obj["endpoints"], chance):
        cloud.admin.put(f"{ENDPOINT_SLICES}/fleet-web", {**obj, "endpoints": endpoints})
    return Traffic("restart", state, watched(cloud, "fleet", resourceVersion=begin))


def steps(endpoints: list[Json], chance: random.Random) -> Iterator[list[Json]]:
    """Yield the endpoints after each step of the restart."""
    left = list(endpoints)
    for old in endpoints:
        new = endpoint_of("fleet-web", chance)
        starting = {**new, "conditions": {"ready": False, "serving": False, "terminating": False}}
        ending = {**old, "conditions": {"ready": False, "serving": True, "terminating": True}}
        others = [pod for pod in left if pod is not old]
        yield [*left, starting]
        yield [*left, new]
        yield [*others, ending, new]
        left = [*others, new]
        yield left
