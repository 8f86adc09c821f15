"""The objects by which hubs know the labels of all nodes, without a Node in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.nodes import Node
from controllers.runtime.informer import WatchedResource, without_managed_fields
from kube.json_type import Json
from kube.requests.node_labels import ANY_ENDPOINT, NODE_LABELS, written_labels
from kube.requests.node_pools import POOL_LABEL

KEYS = frozenset({POOL_LABEL, "topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
"""Written whatever Services ask for; the host's name, too."""
MAX_KEYS = 64
"""Keys that all Services of the cluster ask for. With more the manager writes nothing, and hubs read the Nodes."""

LABELS = WatchedResource(NODE_LABELS, without_managed_fields)


def labels_of_nodes(name: str, nodes: Iterable[Node], keys: Iterable[str]) -> Json:
    """The object of this name: which of its nodes have which labels, those with the same labels together."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    wanted = sorted({*KEYS, *keys} - {ANY_ENDPOINT})
    for node in nodes:
        labels = written_labels(node.name, node.labels, wanted)
        groups.setdefault(tuple(sorted(labels.items())), []).append(node.name)
    return {
        "apiVersion": NODE_LABELS.api_version,
        "kind": "NodeLabels",
        "metadata": {"name": name},
        "groups": [
            {"labels": dict(labels), "nodes": sorted(names)} for labels, names in sorted(groups.items())
        ],
    }


def differs(live: Json | None, intended: Json) -> bool:
    """Whether an object has to be written."""
    return live is None or live.get("groups", []) != intended["groups"]
