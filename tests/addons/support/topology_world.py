"""A cluster for topology tests, set by hand, for the hub's inputs and views. `World.expected` is an oracle: an
independent implementation of both topology annotations and of local health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from addons.filters.builtin.localhealth import LocalHealth
from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.builtin.topology import Order
from addons.filters.inputs import HubAddress
from addons.inputs.filter_chain import FilterChain
from addons.inputs.filter_inputs import FilterInputs
from addons.views.source import Source
from kube.errors import not_found
from kube.reflector.list_watch import ListWatch
from kube.requests.node_labels import NODE_LABELS
from kube.requests.node_pools import POOL_LABEL
from kube.store.listing import Form
from kube.store.projection import InputKey, Projection
from kube.store.scope import EVERYTHING
from kube.store.view import View
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import Content, Sample, addresses_of
from tests.addons.filters.support.samples import endpoint as endpoint_of
from tests.addons.filters.support.samples import endpoint_slice as slice_of
from tests.addons.support.hand_source import HandSource

OWN = "n1"

type Endpoint = tuple[str, str | None, bool]
"""Address, node, and whether it is ready."""


@dataclass(frozen=True)
class Slice:
    service: str
    endpoints: tuple[Endpoint, ...]
    trigger: str = ""


@dataclass
class World:
    """The cluster's state as plain values."""

    order: Order = Order.ANY
    has_pools: bool = True
    """True if the kind NodePool is installed; otherwise node labels define the pools."""
    services: dict[str, dict[str, str]] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    pools: dict[str, frozenset[str]] = field(default_factory=dict)
    slices: dict[str, Slice] = field(default_factory=dict)
    unhealthy: frozenset[str] = frozenset()

    def expected(self) -> dict[str, list[str]]:
        """Return the addresses that this node should see in each slice."""
        return {
            name: [address for address, node, _ in each.endpoints if self._shown(each.service, node)]
            for name, each in self.slices.items()
        }

    def _shown(self, service: str, node: str | None) -> bool:
        if node is not None and node in self.unhealthy:
            return False
        annotations = self.services.get(service, {})
        if not self._in_scope(annotations.get("openyurt.io/topologyKeys", ""), node):
            return False
        try:
            keys = json.loads(annotations.get("topologyKeys", "[]"))
        except ValueError:
            return True
        if not keys:
            return True
        if self.order is Order.ANY and keys[-1] != "*":
            return any(self._share(node, key) for key in keys)
        for key in keys:
            if key == "*":
                return True
            if any(self._share(other, key) for other in self._ready(service, annotations)):
                return self._share(node, key)
        return False

    def _in_scope(self, topology: str, node: str | None) -> bool:
        if topology == "kubernetes.io/hostname":
            return node == OWN
        if topology not in ("openyurt.io/nodepool", "kubernetes.io/zone"):
            return True
        pool = self.nodes.get(OWN, {}).get(POOL_LABEL, "")
        if not self.has_pools:
            members = {name for name, labels in self.nodes.items() if labels.get(POOL_LABEL, "") == pool}
            return not pool or node in members
        return not pool or pool not in self.pools or node in self.pools[pool] or node == OWN

    def _share(self, node: str | None, key: str) -> bool:
        if node is None or node not in self.nodes or OWN not in self.nodes:
            return False
        return key in self.nodes[OWN] and self.nodes[node].get(key) == self.nodes[OWN][key]

    def _ready(self, service: str, annotations: dict[str, str]) -> set[str]:
        topology = annotations.get("openyurt.io/topologyKeys", "")
        return {
            node
            for each in self.slices.values()
            if each.service == service
            for _, node, ready in each.endpoints
            if ready and node is not None and node not in self.unhealthy and self._in_scope(topology, node)
        }


class Client:
    """A watcher of a view, with its state after the received events."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.state = {item.key[1]: _addresses(view, item.raw) for item in view.listing().items}
        self.events: list[tuple[str, str]] = []
        self._watcher = view.watch(None, bookmarks=False)
        self._reader = view.codec.frames()

    async def drain(self) -> list[tuple[str, str]]:
        """Apply the received events; return type and name of each."""
        taken: list[tuple[str, str]] = []
        try:
            async with asyncio.timeout(0):
                while True:
                    for chunk in await self._watcher.frames():
                        for frame in self._reader.feed(chunk):
                            taken.append(self._take(frame.type, frame.raw))
        except TimeoutError:
            return taken

    def _take(self, event_type: str, raw: bytes) -> tuple[str, str]:
        store = self.view.projection.store
        name = decode_object(store.codec.encoding, store.api_version, store.kind, raw).name
        assert (event_type == "ADDED") is (name not in self.state), (
            "MODIFIED of what is known, ADDED of what is not"
        )
        if event_type == "DELETED":
            del self.state[name]
        else:
            self.state[name] = _addresses(self.view, raw)
        return event_type, name


class Hub:
    """The inputs and one filtered view per encoding over stores that a test fills. Needs a running loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.version = 10
        self._sources: dict[str, HandSource] = {}
        self.inputs = FilterInputs(OWN, "", HubAddress(("169.254.2.1",), 10268), self._open, self._changed)
        filters = (ServiceTopology(world.order), LocalHealth())
        self.stores = [
            self._source("slices", Encoding.PROTOBUF).store,
            self._source("json", Encoding.JSON).store,
        ]
        self._fill()
        self.projections: list[Projection] = []
        for store in self.stores:
            self.projections.append(Projection(store, FilterChain(filters, self.inputs, "endpointslices")))
        self.views = [View(each, EVERYTHING, Form(metadata_only=False)) for each in self.projections]

    def close(self) -> None:
        for view in self.views:
            view.close()
        self.inputs.close()

    def set_service(self, name: str, annotations: dict[str, str] | None) -> None:
        _put(self.world.services, name, annotations)
        self._apply("services", _service(name, annotations or {}), gone=annotations is None)

    def set_node(self, name: str, labels: dict[str, str] | None) -> None:
        if labels is None and name not in self.world.nodes:
            return
        _put(self.world.nodes, name, labels)
        # The two sources receive the same write one after the other, at one version.
        self._apply("nodes", _node(name, labels or {}), gone=labels is None)
        if name == OWN:
            self.version -= 1
            self._apply("own", _node(name, labels or {}), gone=labels is None)

    def set_pool(self, name: str, nodes: frozenset[str] | None) -> None:
        if not self.world.has_pools:
            return
        _put(self.world.pools, name, nodes)
        self._apply("pools", _pool(name, nodes or frozenset()), gone=nodes is None)

    def set_slice(self, name: str, value: Slice | None) -> None:
        known = self.world.slices.get(name)
        if value == known and name in self.world.slices and self.projections:
            return  # kube-apiserver sends no event for a write without changes
        _put(self.world.slices, name, value)
        sample = _slice(name, value or known or Slice("", ()))
        for store in ("slices", "json"):
            self._apply(store, sample, gone=value is None)
            self.version -= 1
        self.version += 1

    def set_health(self, unhealthy: Iterable[str]) -> None:
        self.world.unhealthy = frozenset(unhealthy)
        self.inputs.local_health(self.world.unhealthy)

    def _changed(self, list_watches: Collection[InputKey]) -> None:
        for each in self.projections:
            each.inputs_changed(list_watches)

    def _open(self, list_watch: ListWatch) -> Source:
        names = {"services": "services", "nodepools": "pools", "endpointslices": "slices"}
        if list_watch.type == NODE_LABELS:
            nobody = HandSource()
            nobody.reflector.refusal = not_found("nodelabels.edgehub.io", "")
            return cast(Source, nobody)
        is_own_node = list_watch.field_selector and list_watch.type.resource == "nodes"
        name = "own" if is_own_node else names.get(list_watch.type.resource, "nodes")
        return cast(Source, self._source(name))

    def _source(self, name: str, encoding: Encoding = Encoding.JSON) -> HandSource:
        source = self._sources.get(name)
        if source is None:
            source = self._sources[name] = HandSource()
            kinds = {
                "services": "Service",
                "pools": "NodePool",
                "slices": "EndpointSlice",
                "json": "EndpointSlice",
            }
            api = "discovery.k8s.io/v1" if name in ("slices", "json") else "v1"
            if name == "pools" and not self.world.has_pools:
                source.reflector.refusal = not_found("nodepools", "")
            else:
                source.store.replace(codec_for(encoding), api, kinds.get(name, "Node"), self.version, [])
        return source

    def _fill(self) -> None:
        """Fill the stores with the world's initial objects."""
        world = self.world
        self.projections = []
        for name, written in list(world.services.items()):
            self.set_service(name, written)
        for name, labels in list(world.nodes.items()):
            self.set_node(name, labels)
        for name, nodes in list(world.pools.items()):
            self.set_pool(name, nodes)
        for name, value in list(world.slices.items()):
            self.set_slice(name, value)

    def _apply(self, source: str, sample: Sample, *, gone: bool) -> None:
        self.version += 1
        store = self._source(source).store
        sample.content["metadata"]["resourceVersion"] = str(self.version)
        store.apply("DELETED" if gone else "MODIFIED", sample.build(store.codec.encoding).encode())


def _addresses(view: View, raw: bytes) -> list[str]:
    store = view.projection.store
    return addresses_of(decode_object(store.codec.encoding, store.api_version, store.kind, raw))


def _put[T](where: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        where.pop(name, None)
    else:
        where[name] = value


def _object(kind: str, name: str, namespace: str = "", **more: Any) -> Sample:
    metadata: Content = {"name": name, **{key: value for key, value in more.items() if value}}
    if namespace:
        metadata["namespace"] = namespace
    return Sample("v1", kind, {"metadata": metadata})


def _service(name: str, annotations: dict[str, str]) -> Sample:
    return _object("Service", name, "default", annotations=annotations)


def _node(name: str, labels: dict[str, str]) -> Sample:
    return _object("Node", name, labels=labels)


def _pool(name: str, nodes: frozenset[str]) -> Sample:
    sample = _object("NodePool", name)
    sample.content["status"] = {"nodes": sorted(nodes)}
    return sample


def _slice(name: str, value: Slice) -> Sample:
    return slice_of(
        [endpoint_of(address, node, ready) for address, node, ready in value.endpoints],
        name=name,
        service_name=value.service,
        annotations={"openyurt.io/updateTrigger": value.trigger} if value.trigger else None,
    )
