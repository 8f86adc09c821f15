"""The three kinds of patch on JSON objects; the product's own implementation is also tested against a real server. All
functions return a new object and do not modify their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube.errors import bad_request
from kube.json_type import Json
from kube.objects.object_patches import apply_json_patch, merge_patch
from kube.objects.strategic_merge import strategic_merge

_CONTAINERS = {f"spec.{kind}": "name" for kind in ("containers", "initContainers", "ephemeralContainers")} | {
    f"spec.{kind}.{field}": key
    for kind in ("containers", "initContainers")
    for field, key in (("ports", "containerPort"), ("env", "name"), ("volumeMounts", "mountPath"))
}

MERGE_KEYS: Mapping[str, Mapping[str, str]] = {
    "": {"metadata.ownerReferences": "uid", "metadata.finalizers": ""},
    "Node": {"status.conditions": "type", "status.addresses": "type", "spec.podCIDRs": ""},
    "Pod": {
        **_CONTAINERS,
        "spec.volumes": "name",
        "spec.imagePullSecrets": "name",
        "status.conditions": "type",
        "status.podIPs": "ip",
        "status.hostIPs": "ip",
    },
    "Service": {"spec.ports": "port", "status.conditions": "type"},
    "ServiceAccount": {"secrets": "name", "imagePullSecrets": "name"},
    "Namespace": {"status.conditions": "type"},
}
"""By kind ("" for every kind) and path: the merged lists, and the field that identifies their elements ("" for lists of
strings). Source: the patchMergeKey tags of the API's Go types. Other lists are replaced. The product has only the lists
of metadata and status."""


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


def apply_patch(type_: PatchType, kind: str, target: Json, patch: object) -> Json:
    """Return `target`, an object of that kind, changed by `patch`, which is parsed JSON. StatusError like the
    server."""
    if type_ is PatchType.JSON:
        patched: Json = apply_json_patch(target, patch)
        return patched
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into a map")
    if type_ is PatchType.MERGE:
        return merge_patch(target, patch)
    return strategic_merge(target, patch, {**MERGE_KEYS[""], **MERGE_KEYS.get(kind, {})})
