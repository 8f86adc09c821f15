"""The topology labels of all nodes, which the manager writes for hubs into sixteen small objects.

These objects change only with labels, whereas a Node changes with each status update.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping

from kube.requests.label_syntax import key_faults
from kube.requests.request_info import ResourceType

NODE_LABELS = ResourceType("edgehub.io", "v1", "nodelabels")
BUCKETS = 16
"""The number of objects. The hash of a node's name selects the node's object."""
HOSTNAME = "kubernetes.io/hostname"
"""Omitted if the value is the node's name, as it usually is. "" means that the node has no such label."""
ANY_ENDPOINT = "*"
"""The last entry in an ordered list of keys: any endpoint (SuperEdge)."""
MAX_KEYS = 16
"""The most keys of one Service, as in Kubernetes' former spec.topologyKeys. Each is compared on each node."""
MAX_KEYS_TEXT = 16 * 1024
"""The most characters of the keys' JSON, which is parsed for each slice of the Service: three times the longest valid
keys."""


def parse_topology_keys(text: str) -> tuple[str, ...] | None:
    """Parse the annotation `topologyKeys` and drop repetitions.

    Returns None if the text is not a JSON array of at most MAX_KEYS label keys and `"*"`. `null` and `[]` are
    SuperEdge's values for no topology.
    """
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
    """The name of the object that contains a node."""
    return f"{zlib.crc32(node.encode()) % BUCKETS:02}"


def written_labels(node: str, labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """A node's labels with these keys, in the stored form."""
    chosen = {key: labels[key] for key in keys if key in labels and key != HOSTNAME}
    hostname = labels.get(HOSTNAME, "")
    return chosen if hostname == node else {**chosen, HOSTNAME: hostname}


def read_labels(node: str, written: Mapping[str, str]) -> dict[str, str]:
    """Restore a node's labels from the form of `written_labels`."""
    complete = {HOSTNAME: node, **written}
    return {key: value for key, value in complete.items() if value or key != HOSTNAME}
