"""The trigger controllers: they write an annotation, so that OpenYurt's hubs filter an object again.

A change creates a demand for each object that it concerns: "annotated no earlier than now". The controller drops a
demand when the object's annotation fulfils it. A standby manager holds the same demands, so that a change which the
leader saw but did not handle is not lost when the leader ends.

A ConfigMap records, for the next manager, the state up to which hubs have been triggered: the topology of each Service,
and the nodes of each pool. The manager writes it when all demands are fulfilled. The next manager creates demands for
the differences: changes while no manager ran, and those still queued when the last one ended.

Without the kind NodePool the nodes of pools are those of NodeBuckets, if the cluster has these.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
import zlib
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from controllers.cluster.kinds import SERVICES, Service
from controllers.cluster.node_pools import NODEBUCKETS, NODEPOOLS, NodeBucket, NodePool
from controllers.runtime import metrics
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import WatchedResource, one_object
from controllers.runtime.unstructured import mapping, text
from controllers.runtime.write_client import NotLeading, unless_gone
from controllers.triggers.backends import Backends, endpoint_slices_resource, endpoints_resource
from kube.concurrency.workqueue import Bucket
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

ENTRY = "seen"
"""The key of the ConfigMap's data."""
MAX_RECORD = 512 * 1024
"""Characters of a packed record, which fifty thousand Services fit into; the API server accepts ConfigMaps of 1 MiB."""
MAX_UNPACKED = 32 * 1024 * 1024
"""Bytes of a decompressed record."""
LONGEST_TOPOLOGY = 32
"""Characters of a topology that the record has as text; the known values have at most 22. Longer ones become a digest:
otherwise annotations of 256 KiB on four Services would exceed the record."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state up to which hubs have been triggered: the topology of each Service, as `digested` returns it or None,
    and the nodes of each pool."""

    topologies: dict[Key, str | None] = field(default_factory=dict)
    pools: dict[str, frozenset[str]] = field(default_factory=dict)


def record_name(controller: str) -> str:
    """Return the name of the ConfigMap; manager-configmaps.yaml lets the manager write it."""
    return f"edgehub-manager-{controller}"


def digested(topology: str | None) -> str | None:
    """Return a topology, or its digest if it is long."""
    if topology is None or len(topology) <= LONGEST_TOPOLOGY:
        return topology
    return hashlib.blake2b(topology.encode(), digest_size=16).hexdigest()


def differences(before: Seen, now: Seen) -> tuple[set[Key], set[str]]:
    """Return the Services whose topology differs, and all old and new nodes of pools whose nodes differ.

    A new Service is no difference: hubs read its topology with its first endpoints.
    """
    known = before.topologies.keys() & now.topologies.keys()
    services = {key for key in known if before.topologies[key] != now.topologies[key]}
    nodes: set[str] = set()
    for pool in before.pools.keys() | now.pools.keys():
        old, new = before.pools.get(pool, frozenset()), now.pools.get(pool, frozenset())
        if old != new:
            nodes |= old | new
    return services, nodes


def pack(seen: Seen) -> str:
    """Pack the record as text: compressed JSON, because names of Services repeat each other."""
    topologies: dict[str, dict[str, str | None]] = {}
    for (namespace, name), topology in sorted(seen.topologies.items()):
        topologies.setdefault(namespace, {})[name] = topology
    pools = {name: sorted(nodes) for name, nodes in sorted(seen.pools.items())}
    packed = zlib.compress(orjson.dumps({"topologies": topologies, "pools": pools}))
    return base64.b64encode(packed).decode()


def unpack(packed: str) -> Seen | None:
    """Unpack a record of `pack`; None for any other text."""
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED)
        document: Json = mapping(orjson.loads(unpacked))
    except (ValueError, zlib.error):
        return None
    topologies = {
        (namespace, name): topology if isinstance(topology, str) else None
        for namespace, services in mapping(document.get("topologies")).items()
        for name, topology in mapping(services).items()
    }
    pools = {
        name: frozenset(map(text, nodes))
        for name, nodes in mapping(document.get("pools")).items()
        if isinstance(nodes, list)
    }
    return Seen(topologies, pools)


def read_record(obj: Json) -> Seen | None:
    return unpack(text(mapping(obj.get("data")).get(ENTRY)))


def record(namespace: str, controller: str, packed: str) -> Json:
    """Build the ConfigMap to apply."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": record_name(controller)},
        "data": {ENTRY: packed},
    }


RATE = 200.0
"""Writes per second for each kind: 1,000 slices of one change take 5 s. The cloud sends each written object to every
node that watches it, so slices of 1 KB cost 200 KB/s on each link. At this rate a first start with 2,500 slices in
pools finishes within 20 s."""
BURST = 10
"""Writes before the rate limit applies."""
RECORD_INTERVAL = 10.0
"""Seconds between two checks of whether the record is outdated, and so the shortest time between two writes."""
CONFIG_MAPS = ResourceType("", "v1", "configmaps")
SKEW = 60.0
"""Seconds by which the clocks of two managers may differ."""


logger = logging.getLogger(__name__)


class UpdateTrigger(Controller):
    """Writes the trigger annotation. Key: an Endpoints or EndpointSlice object."""

    workers = 4
    resource: Callable[[str], WatchedResource[Backends]]
    """Describes the watch of the kind, given the name of the trigger annotation."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._annotation = context.settings.trigger_annotation
        kind = self._kind = self.resource(self._annotation)
        self._demands: dict[Key, float] = {}
        # Changes seen before all informers have synced: the objects that they concern are not known yet.
        self._unresolved_services: set[Key] = set()
        self._unresolved_nodes: set[str] = set()
        self._pace = Bucket(RATE, BURST)
        self._targets = self.follow(kind, self._target_changed)
        self._services = self.follow(SERVICES, self._service_changed)
        self._pools = self.follow(NODEPOOLS, self._pool_changed, optional=True)
        self._buckets = self.follow(NODEBUCKETS, self._bucket_changed, optional=True)
        self._namespace = context.settings.namespace
        self._record = self.follow(
            one_object(CONFIG_MAPS, self._namespace, record_name(self.name), read_record)
        )

    async def run(self) -> None:
        await self.wait_for_sync()
        before = self._recorded()
        self._demand_for(*(differences(before, self._seen()) if before is not None else (set(), set())))
        await super().run()

    async def watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(RECORD_INTERVAL)
            seen = self._seen()
            if self._demands or not self.queue.idle or seen == self._recorded():
                continue
            packed = pack(seen)
            metrics.UNRECORDED.labels(self.name).set(len(packed) > MAX_RECORD)
            if len(packed) > MAX_RECORD:
                continue
            try:
                await self.apply(self._record, record(self._namespace, self.name, packed))
            except (StatusError, Unreachable, NotLeading) as error:
                logger.warning("%s: the record of triggers was not written: %s", self.name, error)

    def _recorded(self) -> Seen | None:
        return self._record.get((self._namespace, record_name(self.name)))

    def _seen(self) -> Seen:
        topologies = {key: digested(service.topology) for key, service in self._services.items()}
        pools: dict[str, frozenset[str]] = {}
        if self._pools.has_synced:
            pools = {pool.name: frozenset(pool.nodes) for _, pool in self._pools.items() if pool.nodes}
        else:
            for _, bucket in self._buckets.items():
                pools[bucket.pool] = pools.get(bucket.pool, frozenset()) | frozenset(bucket.nodes)
        return Seen(topologies, pools)

    async def reconcile(self, key: Key) -> None:
        if not self._is_due(key):
            return
        await asyncio.sleep(self._pace.reserve())
        if not self._is_due(key):
            return
        now = datetime.now(UTC)
        patch = {"metadata": {"annotations": {self._annotation: trigger_value(now)}}}
        with unless_gone():
            await self._context.api.merge_patch(self._kind.type, *key, patch)
        if self._demands.get(key, 0.0) <= now.timestamp():
            self._demands.pop(key, None)

    def _is_due(self, key: Key) -> bool:
        demand, target = self._demands.get(key), self._targets.get(key)
        if demand is None or target is None or target.deleting or is_met(demand, target.triggered):
            self._demands.pop(key, None)
            return False
        return True

    def _target_changed(self, key: Key, _old: Backends | None, _new: Backends | None, _first: bool) -> None:
        if key in self._demands:
            self._is_due(key)

    def _service_changed(self, key: Key, old: Service | None, new: Service | None, _first: bool) -> None:
        if topology_changed(old, new):
            self._demand_for({key}, set())

    def _pool_changed(self, _key: Key, old: NodePool | None, new: NodePool | None, first: bool) -> None:
        if not first:
            self._demand_for(set(), affected_nodes(old, new))

    def _bucket_changed(self, _key: Key, old: NodeBucket | None, new: NodeBucket | None, first: bool) -> None:
        if first or old == new or self._pools.has_synced:
            return
        pools = {bucket.pool for bucket in (old, new) if bucket is not None}
        nodes = {
            node
            for pool in pools
            for _, bucket in self._buckets.by_index("pool", pool)
            for node in bucket.nodes
        }
        self._demand_for(set(), nodes.union(*(bucket.nodes for bucket in (old, new) if bucket is not None)))

    def _demand_for(self, services: Set[Key], nodes: Set[str]) -> None:
        """Demand a trigger for all objects of these Services, and for objects with an endpoint on these nodes whose
        Service keeps traffic in the pool."""
        self._unresolved_services |= services
        self._unresolved_nodes |= nodes
        if not self.has_synced:
            return
        for key in self._unresolved_services:
            for target, _ in self._targets.by_index("service", "/".join(key)):
                self._demand(target)
        for node in self._unresolved_nodes:
            for target, backends in self._targets.by_index("node", node):
                service = self._services.get(backends.service)
                if service is not None and service.in_pool:
                    self._demand(target)
        self._unresolved_services.clear()
        self._unresolved_nodes.clear()

    def _demand(self, key: Key) -> None:
        self._demands[key] = time.time()
        self.queue.add(key)


def topology_changed(old: Service | None, new: Service | None) -> bool:
    """Whether the topology annotation of an existing Service was added, removed or changed."""
    return old is not None and new is not None and old.topology != new.topology


def affected_nodes(old: NodePool | None, new: NodePool | None) -> frozenset[str]:
    """Return the nodes whose endpoints a change of a pool concerns; none if the pool's nodes are the same.

    These are all old and new nodes of the pool: a node that joins begins to see the endpoints of the others, and a node
    that leaves ceases to. The first count of a new pool is such a change too, because hubs have seen the pool without
    nodes.
    """
    before = frozenset(old.nodes) if old is not None else frozenset()
    after = frozenset(new.nodes) if new is not None else frozenset()
    return frozenset() if before == after else before | after


def is_met(demand: float, triggered: float) -> bool:
    """Whether the object was annotated since the demand. A time in the future is invalid and meets no demand."""
    return demand <= triggered <= time.time() + SKEW


def trigger_value(moment: datetime) -> str:
    """Return the annotation's value, with microseconds: two triggers within a second must differ."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


class EndpointsTriggerController(UpdateTrigger):
    name = "servicetopology-endpoints"
    resource = staticmethod(endpoints_resource)


class EndpointSlicesTriggerController(UpdateTrigger):
    name = "servicetopology-endpointslices"
    resource = staticmethod(endpoint_slices_resource)
