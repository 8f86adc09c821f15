"""The objects of the test cloud: create, update, patch and delete by kube-apiserver's rules. HTTP requests and tests
use the same methods; a test calls `cloud.store.create({...})` and gets the stored object."""

from __future__ import annotations

import copy
from typing import Any

from kube.errors import StatusError, not_found
from kube.json_type import Json
from tests.cloud.scriptable.admission import as_created, as_updated, check_uid, check_version
from tests.cloud.scriptable.conversion import from_storage, to_storage
from tests.cloud.scriptable.patches import PatchType, apply_patch
from tests.cloud.scriptable.resources import Resource, ResourceTable, Trait
from tests.cloud.scriptable.storage import Collection, Key, Snapshot, Storage, Stored

SERVICE_NETWORK = "10.96"
"""The first half of the addresses of Services, as in a real cluster's default range."""


class ObjectStore:
    """Objects by resource. A resource is given as a Resource or by its plural ("services",
    "leases.coordination.k8s.io"). Objects are JSON in the resource's version; returned ones are copies. All methods
    raise StatusError like the server."""

    def __init__(self, storage: Storage, resources: ResourceTable) -> None:
        self.storage = storage
        self._resources = resources
        self._addresses = 0

    @property
    def version(self) -> int:
        """Return the resourceVersion of the newest write."""
        return self.storage.version

    def compact(self) -> None:
        """Drop all older versions, like etcd's compaction together with a restarted watch cache."""
        self.storage.compact()

    def snapshot(self) -> Snapshot:
        return self.storage.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the snapshot: resourceVersions run backwards, open watches end."""
        self.storage.restore(snapshot)

    def get(self, resource: Resource | str, name: str, namespace: str = "") -> Json:
        resource = self._resource(resource)
        return self._shown(resource, self.find(resource, name, namespace))

    def list(self, resource: Resource | str, namespace: str = "") -> list[Json]:
        """Return the objects in the order of a list: by namespace and name."""
        resource = self._resource(resource)
        objects = self.collection(resource).objects
        return [
            self._shown(resource, objects[key])
            for key in sorted(objects, key="/".join)
            if namespace in {"", key[0]}
        ]

    def create(self, value: Json, *, resource: Resource | None = None, namespace: str | None = None) -> Json:
        """Store a new object; its own kind and namespace are the default."""
        resource = resource or self._resource_of(value)
        if namespace is None:
            namespace = value["metadata"].get("namespace", "default" if resource.namespaced else "")
        created = to_storage(resource, as_created(resource, value, namespace))
        key = _key(created)
        if key in self.collection(resource).objects:
            details = {"name": key[1], "group": resource.group, "kind": resource.name}
            message = f'{resource.group_resource} "{key[1]}" already exists'
            raise StatusError(
                409, "AlreadyExists", message, {name: one for name, one in details.items() if one}
            )
        if resource.kind == "Service":
            self._give_address(created)
        return self._write(resource, created)

    def update(self, value: Json, *, resource: Resource | None = None, subresource: str = "") -> Json:
        """Replace an object; a resourceVersion or uid in it must be the current one."""
        resource = resource or self._resource_of(value)
        metadata = value["metadata"]
        old = self.collection(resource).objects.get((metadata.get("namespace", ""), metadata["name"]))
        if old is None:
            if Trait.PUT_CREATES not in resource.traits or subresource:
                raise not_found(resource.group_resource, metadata["name"])
            metadata = {name: one for name, one in metadata.items() if name != "resourceVersion"}
            return self.create({**value, "metadata": metadata}, resource=resource)
        check_uid(resource, old.value, metadata.get("uid", ""))
        check_version(resource, old.value, metadata.get("resourceVersion", ""), needed=not subresource)
        return self._replace(resource, old, value, subresource)

    def put(self, value: Json) -> Json:
        """Create or replace an object, in one step for tests."""
        resource = self._resource_of(value)
        metadata = {**value["metadata"]}
        metadata.pop("resourceVersion", None)
        metadata.pop("uid", None)
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        value = {**value, "metadata": metadata}
        old = self.collection(resource).objects.get(_key(value))
        return self.create(value) if old is None else self._replace(resource, old, value, "")

    def patch(
        self,
        resource: Resource | str,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Json:
        """Change a part of an object. A resourceVersion in the patch must be the current one."""
        resource = self._resource(resource)
        old = self.find(resource, name, namespace)
        patched = apply_patch(patch_type, resource.kind, from_storage(resource, old.value), patch)
        metadata = patched.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("name") != name:
            asked = metadata.get("name", "") if isinstance(metadata, dict) else ""
            raise StatusError(
                400,
                "BadRequest",
                f"the name of the object ({asked}) does not match the name on the URL ({name})",
            )
        check_version(resource, old.value, metadata.get("resourceVersion", ""), needed=False)
        return self._replace(resource, old, patched, subresource)

    def delete(self, resource: Resource | str, name: str, namespace: str = "") -> Json:
        """Delete an object; return its last state."""
        resource = self._resource(resource)
        old = self.find(resource, name, namespace)
        removed = self.storage.remove(resource.collection, _key(old.value))
        if resource.kind == "Namespace":
            self._empty(name)
        return self._shown(resource, removed)

    def find(self, resource: Resource, name: str, namespace: str = "") -> Stored:
        """Return the stored object; 404 if there is none."""
        stored = self.collection(resource).objects.get((namespace if resource.namespaced else "", name))
        if stored is None:
            raise not_found(resource.group_resource, name)
        return stored

    def collection(self, resource: Resource) -> Collection:
        return self.storage.collection(resource.collection)

    def _replace(self, resource: Resource, old: Stored, value: Json, subresource: str) -> Json:
        before = old.value
        updated = as_updated(resource, from_storage(resource, before), value, subresource)
        updated = to_storage(resource, updated)
        if resource.kind == "Service":
            _keep_address(updated, before)
        updated["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if updated == before:
            return self._shown(resource, old)
        return self._write(resource, updated)

    def _write(self, resource: Resource, value: Json) -> Json:
        return self._shown(resource, self.storage.write(resource.collection, _key(value), value))

    def _shown(self, resource: Resource, stored: Stored) -> Json:
        return copy.deepcopy(from_storage(resource, stored.value))

    def _empty(self, namespace: str) -> None:
        """Delete a namespace's objects at once; in a real cluster a controller does so."""
        for name in {resource.collection for resource in self._resources if resource.namespaced}:
            for key in [key for key in self.storage.collection(name).objects if key[0] == namespace]:
                self.storage.remove(name, key)

    def _give_address(self, value: Json) -> None:
        spec = value["spec"]
        if spec["type"] != "ExternalName" and "clusterIP" not in spec:
            self._addresses += 1
            spec["clusterIP"] = f"{SERVICE_NETWORK}.{self._addresses // 256}.{self._addresses % 256}"
        if "clusterIP" in spec:
            spec.setdefault("clusterIPs", [spec["clusterIP"]])

    def _resource(self, resource: Resource | str) -> Resource:
        return self._resources.named(resource) if isinstance(resource, str) else resource

    def _resource_of(self, value: Json) -> Resource:
        return self._resources.of_kind(value["apiVersion"], value["kind"])


def _key(value: Json) -> Key:
    metadata = value["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _keep_address(updated: Json, before: Json) -> None:
    """Preserve the address of a Service that is written without it."""
    for name in ("clusterIP", "clusterIPs"):
        if name in before.get("spec", {}) and updated["spec"]["type"] != "ExternalName":
            updated["spec"].setdefault(name, copy.deepcopy(before["spec"][name]))
