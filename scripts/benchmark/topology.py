"""The load of `scripts/bench --topology`: the cost of a changed filter input for the hub of a big node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp

from kube.json_type import Json
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from scripts.benchmark.load import (
    ENDPOINT_SLICES,
    HEADERS,
    NAMESPACE,
    SERVICES,
    SLICES,
    cpu_seconds,
    post_all,
    session,
    slice_of,
)
from tests.cloud.real import RealCloud
from tests.hub.support.node_pools import POOL_CRD, POOLS
from tests.hub.support.process import Hub

COMPONENTS = ("kube-proxy", "coredns", "nginx-ingress-controller", "reader-1", "reader-2")
"""Components with a view each, the last two because of a rule."""
RULES = {"filter_servicetopology": "reader-1/endpointslices,reader-2/endpointslices"}
WATCHERS = 10
"""Watchers of each view."""
KEYED = 100
"""Slices with a Service of their own, whose topology is this node's zone."""
PER_SERVICE = 100
"""Slices of each other Service, whose topology is this node's pool."""
POOL_NODES = 500
ENDPOINTS = 10
QUIET = 0.3
"""Seconds without an event after which a change counts as complete."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one change of an input: seconds to the last event, CPU seconds of the hub, events and evaluations."""

    seconds: float
    cpu: float
    events: int
    evaluations: int


@dataclass(slots=True)
class Counting:
    """Counts the watchers' events, and records when the last one came."""

    events: int = 0
    last: float = field(default_factory=time.monotonic)


def fill(cloud: RealCloud, slices: int) -> None:
    """Create a pool of 500 nodes, two of them in this node's zone, and slices with endpoints on them."""
    cloud.apply(POOL_CRD)
    admin = cloud.admin
    admin.post(
        "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "yurt-hub-cfg"}, "data": RULES}
    )
    pool: Json = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "p1"}}
    admin.post(POOLS, pool)
    set_pool(cloud, POOL_NODES)
    for name, zone in (("node-1", "a"), ("node-2", "a"), ("node-3", "b")):
        labels = {"zone": zone, "apps.openyurt.io/nodepool": "p1"}
        admin.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    others = slices - KEYED
    services = [service(f"keyed-{n}", "topologyKeys", '["zone"]') for n in range(KEYED)]
    services += [
        service(f"pooled-{n}", "openyurt.io/topologyKeys", "openyurt.io/nodepool")
        for n in range(others // PER_SERVICE)
    ]
    post_all(cloud, SERVICES, services)
    made = [endpoint_slice(n, f"keyed-{n}", [2, 3] * (ENDPOINTS // 2)) for n in range(KEYED)]
    for n in range(others):
        # Each slice has endpoints on ten consecutive nodes. The last nodes are not in the pool yet.
        first = n * ENDPOINTS % (POOL_NODES + ENDPOINTS) + 1
        nodes = list(range(first, first + ENDPOINTS))
        made.append(endpoint_slice(KEYED + n, f"pooled-{n // PER_SERVICE}", nodes))
    post_all(cloud, ENDPOINT_SLICES, made)


def service(name: str, annotation: str, value: str) -> Json:
    return {
        "metadata": {"name": name, "annotations": {annotation: value}},
        "spec": {"ports": [{"name": "http", "port": 80}], "clusterIP": "None"},
    }


def endpoint_slice(number: int, of: str, nodes: list[int]) -> Json:
    endpoints: list[Json] = [
        {
            "addresses": [f"10.{number % 200}.{number // 200}.{pod + 1}"],
            "nodeName": f"node-{node}",
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": f"{of}-{number}-{pod}"},
        }
        for pod, node in enumerate(nodes)
    ]
    return slice_of(of, endpoints, name=f"slice-{number}")


def set_pool(cloud: RealCloud, nodes: int) -> None:
    status = {"status": {"nodes": [f"node-{number}" for number in range(1, nodes + 1)]}}
    cloud.admin.patch(f"{POOLS}/p1/status", status)


async def topology(hub: Hub, cloud: RealCloud, slices: int) -> dict[str, Cost]:
    """Measure the cost of each kind of change, by its name."""
    admin, watched = cloud.admin, len(COMPONENTS) * WATCHERS

    def relabel(zone: str) -> Callable[[], object]:
        return lambda: admin.patch("/api/v1/nodes/node-1", {"metadata": {"labels": {"zone": zone}}})

    def annotate(name: str, value: str | None) -> Callable[[], object]:
        annotations = {"topologyKeys": value}
        return lambda: admin.patch(f"{SERVICES}/{name}", {"metadata": {"annotations": annotations}})

    costs: dict[str, Cost] = {}
    async with session() as http, watchers(hub, http, slices) as counting:
        # The first change of each kind also pays for what the hub makes once.
        await measure(hub, counting, relabel("b"))
        costs["relabel of this node"] = await measure(hub, counting, relabel("a"))
        costs["annotation of one Service"] = await measure(hub, counting, annotate("keyed-0", None))
        costs["pool gains one node of 501"] = await measure(
            hub, counting, lambda: set_pool(cloud, POOL_NODES + 1)
        )
        costs["unrelated label of this node"] = await measure(
            hub, counting, lambda: admin.patch("/api/v1/nodes/node-1", {"metadata": {"labels": {"x": "y"}}})
        )
    assert costs["relabel of this node"].events == KEYED * watched, costs
    return costs


@asynccontextmanager
async def watchers(hub: Hub, http: aiohttp.ClientSession, slices: int) -> AsyncIterator[Counting]:
    """Open all watches, and wait for their initial state."""
    counting = Counting()

    async def watch(component: str) -> None:
        headers = {**HEADERS, "User-Agent": f"{component}/v1"}
        url = f"{hub.url}{SLICES}?watch=true&resourceVersion=0"
        timeout = aiohttp.ClientTimeout(total=None)
        async with http.get(url, headers=headers, timeout=timeout) as answer:
            assert answer.status == 200, await answer.read()
            reader = codec_for(Encoding.PROTOBUF).frames()
            async for chunk in answer.content.iter_any():
                frames = sum(1 for _ in reader.feed(chunk))
                counting.events += frames
                if frames:
                    counting.last = time.monotonic()

    opened = []
    try:
        for component in COMPONENTS:
            opened += [asyncio.create_task(watch(component)) for _ in range(WATCHERS)]
            expected = len(opened) * (slices + 1)  # one more: the slice of default/kubernetes
            async with asyncio.timeout(120):
                while counting.events < expected:
                    await asyncio.sleep(0.1)
                    for ended in filter(asyncio.Task.done, opened):
                        ended.result()  # a watch that failed would be waited for in vain
        await asyncio.sleep(QUIET)
        yield counting
    finally:
        for task in opened:
            task.cancel()
        await asyncio.gather(*opened, return_exceptions=True)


async def measure(hub: Hub, counting: Counting, change: Callable[[], object]) -> Cost:
    """Make a change, and wait until no more events come."""
    events, evaluations, cpu = counting.events, _evaluations(hub), cpu_seconds(hub.process.pid)
    began = counting.last = time.monotonic()
    await asyncio.to_thread(change)
    while time.monotonic() - max(counting.last, began) < QUIET:  # noqa: ASYNC110 - silence tells nobody
        await asyncio.sleep(QUIET / 10)
    spent = cpu_seconds(hub.process.pid) - cpu
    return Cost(counting.last - began, spent, counting.events - events, _evaluations(hub) - evaluations)


def _evaluations(hub: Hub) -> int:
    """Count the evaluations of all projections. Views with the same filters, as all views here, share a projection."""
    views = cast(list[dict[str, Any]], hub.debug("views"))
    return max((view["evaluations"] for view in views if view["path"] == SLICES), default=0)


def report(costs: dict[str, Cost], slices: int) -> None:
    watched = len(COMPONENTS) * WATCHERS
    print(f"{slices} slices of {ENDPOINTS} endpoints, {len(COMPONENTS)} views, {watched} watchers")
    print(f"{'':32}{'ms':>10}{'CPU ms':>10}{'events':>10}{'judged':>10}{'of all':>10}")
    for name, cost in costs.items():
        print(
            f"{name:32}{cost.seconds * 1e3:10.0f}{cost.cpu * 1e3:10.0f}{cost.events:10}{cost.evaluations:10}"
            f"{cost.evaluations / slices:10.2%}"
        )
