"""Completes an object before it is stored: metadata, defaults, the owner of the status, generations. It covers only
what a hub's clients can distinguish from a real server; it does not validate specs."""

from __future__ import annotations

import base64
import copy
import random
import uuid
from datetime import UTC, datetime

from kube.errors import StatusError, bad_request
from kube.json_type import Json
from tests.cloud.scriptable.resources import Resource, Trait

GENERATED_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated name suffixes: k8s.io/apimachinery/pkg/util/rand, without vowels so that no words
appear."""
GENERATED_LENGTH = 5

_SYSTEM_METADATA = ("uid", "creationTimestamp", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Fields of metadata that a client cannot set."""


def now() -> str:
    """Return the current time in the format of metav1.Time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_created(resource: Resource, value: Json, namespace: str) -> Json:
    """Return a new object in its stored form, without its resourceVersion. `value` is not modified. StatusError for a
    namespace other than the request's."""
    created = copy.deepcopy(value)
    metadata = created["metadata"]
    for name in (*_SYSTEM_METADATA, "resourceVersion"):
        metadata.pop(name, None)
    check_namespace(resource, metadata, namespace)
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(random.choices(GENERATED_CHARACTERS, k=GENERATED_LENGTH))
        metadata["name"] = metadata["generateName"] + suffix
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()
    if Trait.STATUS in resource.traits and Trait.STATUS_AT_BIRTH not in resource.traits:
        created.pop("status", None)
    if Trait.CUSTOM in resource.traits:
        metadata["generation"] = 1
    _set_defaults(resource, created)
    return created


def as_updated(resource: Resource, old: Json, value: Json, subresource: str) -> Json:
    """Return `old` with the changes of `value` that the path of the write allows. Neither is modified."""
    updated = copy.deepcopy(value)
    before, metadata = old["metadata"], updated["metadata"]
    metadata["name"] = before["name"]
    if resource.namespaced:
        metadata["namespace"] = before["namespace"]
    for name in _SYSTEM_METADATA:
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    if subresource == "status":
        others = [name for name in {*old, *updated} if name != "status"]
        _keep(updated, old, others if Trait.CUSTOM in resource.traits else ["spec"])
    elif Trait.STATUS in resource.traits:
        _keep(updated, old, ["status"])
    if Trait.CUSTOM in resource.traits:
        metadata = updated["metadata"]
        same = all(updated.get(name) == old.get(name) for name in {*old, *updated} - {"metadata", "status"})
        metadata["generation"] = before.get("generation", 1) + (0 if same else 1)
    _set_defaults(resource, updated)
    return updated


def check_namespace(resource: Resource, metadata: Json, namespace: str) -> None:
    """Set the request's namespace on the object; StatusError if it has another one."""
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _keep(updated: Json, old: Json, names: list[str]) -> None:
    for name in names:
        if name in old:
            updated[name] = copy.deepcopy(old[name])
        else:
            updated.pop(name, None)


def _set_defaults(resource: Resource, value: Json) -> None:
    match resource.kind:
        case "Service":
            _set_service_defaults(value)
        case "Namespace":
            labels = value["metadata"].setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = value["metadata"]["name"]
            value.setdefault("status", {"phase": "Active"})
        case "Pod":
            value.setdefault("status", {"phase": "Pending"})
        case "Secret":
            for name, text in (value.pop("stringData", None) or {}).items():
                value.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()
            value.setdefault("type", "Opaque")


def _set_service_defaults(value: Json) -> None:
    """Set type and ports; the store assigns addresses."""
    spec = value.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if spec["type"] != "ExternalName":
            port.setdefault("targetPort", port.get("port"))
    value.setdefault("status", {"loadBalancer": {}})


def check_uid(resource: Resource, old: Json, uid: str) -> None:
    """Raise StatusError 409 if a write names the uid of another object."""
    metadata = old["metadata"]
    if uid and uid != metadata["uid"]:
        raise _conflict(
            resource,
            metadata["name"],
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}",
        )


def check_version(resource: Resource, old: Json, version: str, *, needed: bool) -> None:
    """Raise StatusError 409 for a write of an older state, 422 for one without its required version."""
    metadata = old["metadata"]
    if not version:
        if needed and Trait.PUT_NEEDS_VERSION in resource.traits:
            why = "Invalid value: 0: must be specified for an update"
            message = (
                f'{resource.group_resource} "{metadata["name"]}" is invalid: metadata.resourceVersion: {why}'
            )
            cause = {"reason": "FieldValueInvalid", "message": why, "field": "metadata.resourceVersion"}
            raise StatusError(
                422, "Invalid", message, {**_details(resource, metadata["name"]), "causes": [cause]}
            )
        return
    if version != metadata["resourceVersion"]:
        raise _conflict(
            resource,
            metadata["name"],
            "the object has been modified; please apply your changes to the latest version and try again",
        )


def _conflict(resource: Resource, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {resource.group_resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def _details(resource: Resource, name: str) -> Json:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.name}
