"""The topology labels of all nodes, which the manager writes for hubs into sixteen small objects.

These change with labels alone, while a Node changes with each status."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping

from kube.requests.label_syntax import key_faults
from kube.requests.request_info import ResourceType

NODE_LABELS = ResourceType("edgehub.io", "v1", "nodelabels")
BUCKETS = 16
"""Number of objects. A node is in the object that the hash of its name selects."""
HOSTNAME = "kubernetes.io/hostname"
"""Not written where it is the node's name, as almost always. "" stands for none."""
ANY_ENDPOINT = "*"
"""The last resort in an ordered list of keys: any endpoint (SuperEdge)."""
MAX_KEYS = 16
"""Different keys of one Service, as in Kubernetes' former spec.topologyKeys. Each is looked for on each node."""
MAX_KEYS_TEXT = 16 * 1024
"""Characters of their JSON text, which is parsed for each slice of the Service: some three times the longest keys."""


def parse_topology_keys(text: str) -> tuple[str, ...] | None:
    """Each key of the annotation `topologyKeys` once; None if it is not a JSON array of at most MAX_KEYS label keys and
    `"*"`. `null` and `[]` are SuperEdge's values for no topology."""
    if len(text) > MAX_KEYS_TEXT:
        return None
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if keys is None:
        return ()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        return None
    once = tuple(dict.fromkeys(keys))
    if len(once) > MAX_KEYS or any(key != ANY_ENDPOINT and key_faults(key) for key in once):
        return None
    return once


def bucket_of(node: str) -> str:
    """The name of the object that has a node."""
    return f"{zlib.crc32(node.encode()) % BUCKETS:02}"


def written_labels(node: str, labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """The labels of a node with these keys, as they are written."""
    chosen = {key: labels[key] for key in keys if key in labels and key != HOSTNAME}
    hostname = labels.get(HOSTNAME, "")
    return chosen if hostname == node else {**chosen, HOSTNAME: hostname}


def read_labels(node: str, written: Mapping[str, str]) -> dict[str, str]:
    """The labels of a node, as `written_labels` wrote them."""
    complete = {HOSTNAME: node, **written}
    return {key: value for key, value in complete.items() if value or key != HOSTNAME}
