"""What hubs have been told of, as a ConfigMap keeps it for the next manager: topologies, and nodes of pools. Pure."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass, field

import orjson

from controllers.runtime.unstructured import mapping, text
from kube.json_type import Json
from kube.store.store import Key

ENTRY = "seen"
"""The key of the ConfigMap's data."""
MAX_RECORD = 512 * 1024
"""Characters of a packed record; the API server takes ConfigMaps of 1 MiB. Fifty thousand Services fit."""
MAX_UNPACKED = 32 * 1024 * 1024
"""Bytes of an unpacked record."""
LONGEST_TOPOLOGY = 32
"""Characters of a topology that the record holds as it is; the known ones have 22 at most. Of others it has a digest:
annotations of 256 KiB on four Services would end the record for all."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The topology annotation of each Service, `digested`, None without one, and the nodes of each pool."""

    topologies: dict[Key, str | None] = field(default_factory=dict)
    pools: dict[str, frozenset[str]] = field(default_factory=dict)


def record_name(controller: str) -> str:
    """The name of the ConfigMap; manager-configmaps.yaml lets the manager write it."""
    return f"edgehub-manager-{controller}"


def digested(topology: str | None) -> str | None:
    """A topology as the record holds it."""
    if topology is None or len(topology) <= LONGEST_TOPOLOGY:
        return topology
    return hashlib.blake2b(topology.encode(), digest_size=16).hexdigest()


def differences(before: Seen, now: Seen) -> tuple[set[Key], set[str]]:
    """The Services whose topology differs, and the nodes that a pool has or had if the pool's nodes differ.

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
    """The record as text: packed JSON, because names of Services repeat each other."""
    topologies: dict[str, dict[str, str | None]] = {}
    for (namespace, name), topology in sorted(seen.topologies.items()):
        topologies.setdefault(namespace, {})[name] = topology
    pools = {name: sorted(nodes) for name, nodes in sorted(seen.pools.items())}
    packed = zlib.compress(orjson.dumps({"topologies": topologies, "pools": pools}))
    return base64.b64encode(packed).decode()


def unpack(packed: str) -> Seen | None:
    """What `pack` packed; None for anything else, so that garbage counts as no record."""
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
    """The ConfigMap to apply."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": record_name(controller)},
        "data": {ENTRY: packed},
    }
