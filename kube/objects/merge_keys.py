"""Which lists of a Node and a Pod a strategic merge patch merges, and by which field of their elements.

From the tags patchStrategy and patchMergeKey of k8s.io/api/core/v1/types.go and apimachinery's meta/v1/types.go, 1.36.
Only metadata and status: a write of a status changes nothing else. Every list that is not here is replaced as a
whole; so are containerStatuses, for all that lists inside of their elements have merge keys.
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
    """The lists of a kind that are merged; those of metadata for every other kind."""
    return _KINDS.get(kind, _METADATA)


def below(path: str, name: str) -> str:
    """The path of a field of what is at `path`; elements of a list have the path of the list."""
    return f"{path}.{name}" if path else name
