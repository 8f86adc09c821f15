"""The lists of a Node and a Pod that a strategic merge patch merges, and the key of their elements.

From the tags patchStrategy and patchMergeKey of k8s.io/api/core/v1/types.go and apimachinery's meta/v1/types.go, 1.36.
The table has only lists of metadata and status: a write of a status changes nothing else. A patch replaces every other
list as a whole. One is containerStatuses, although lists inside of its elements have merge keys.
"""

from collections.abc import Mapping

type MergeKeys = Mapping[str, str]
"""Path of a list, as "status.conditions" -> the field that names an element; "" for a list of texts."""

_METADATA: MergeKeys = {"metadata.ownerReferences": "uid", "metadata.finalizers": ""}

_KINDS: Mapping[str, MergeKeys] = {
    # A node has many addresses of one type, which the server merges into the first: kubelet sends them with
    # `$patch: replace`.
    "Node": {**_METADATA, "status.conditions": "type", "status.addresses": "type"},
    "Pod": {
        **_METADATA,
        "status.conditions": "type",
        "status.hostIPs": "ip",
        "status.podIPs": "ip",
        "status.resourceClaimStatuses": "name",
    },
}


def merge_keys_of(kind: str) -> MergeKeys:
    """The merged lists of a kind; a kind without an entry has those of metadata."""
    return _KINDS.get(kind, _METADATA)


def below(path: str, name: str) -> str:
    """The path of a field below `path`. An element of a list has the path of the list."""
    return f"{path}.{name}" if path else name
