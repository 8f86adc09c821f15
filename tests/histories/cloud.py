"""A cloud in memory: resources in several version spaces, their history, and backups of them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from addons.views.source import Source
from kube.concurrency.notifier import Notifier
from kube.errors import StatusError, not_found
from kube.json_type import Json
from kube.requests.request_info import RequestInfo
from kube.store.store import Key
from tests.cloud.scriptable.patches import PatchType, apply_patch
from tests.cloud.scriptable.resources import Resource, Trait
from tests.cloud.scriptable.storage import Snapshot, Storage

BUMP = 1000
"""The increment that a restore with bumped revisions adds to the newest version that the cloud ever had."""
MAIN = 100
SPACES = {"events": 700, "widgets": 10}
"""The first version of each additional version space: events may have their own etcd, an aggregated API has one."""
RESOURCES = {
    each.name: each
    for each in (
        Resource("", "v1", "services", "Service"),
        Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
        Resource("", "v1", "configmaps", "ConfigMap"),
        Resource("", "v1", "nodes", "Node", Trait.CLUSTER),
        Resource("", "v1", "events", "Event"),
        Resource("agg.example.com", "v1", "widgets", "Widget"),
    )
}


class Cloud:
    """The objects, in one storage per version space. `moved` is notified of each write."""

    def __init__(self) -> None:
        self._main, self._others = Storage(MAIN), {name: Storage(at) for name, at in SPACES.items()}
        self.moved = Notifier()
        self._uids = 0
        self._written: set[tuple[str, Key, int]] = set()
        """The writes at each version, in all histories."""
        self._backup: dict[Storage, Snapshot] = {}
        self._former: dict[Storage, int] = {}
        """The newest version of each space at its restore: up to it a version may belong to either history."""
        self.back_up()

    def storage(self, resource: str) -> Storage:
        return self._others.get(resource, self._main)

    def objects(self, resource: str) -> dict[Key, Json]:
        collection = self.storage(resource).collection(RESOURCES[resource].collection)
        return {key: stored.value for key, stored in collection.objects.items()}

    def put(self, resource: str, name: str, **content: Any) -> None:
        """Create or replace an object. Without a change nothing happens."""
        kind = RESOURCES[resource]
        key = (content.pop("namespace", "default") if kind.namespaced else "", name)
        metadata: Json = {"name": name, **content.pop("metadata", {})}
        if kind.namespaced:
            metadata["namespace"] = key[0]
        before = self.objects(resource).get(key, {})
        status = {"status": before["status"]} if "status" in before else {}
        typed = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        self._commit(resource, key, {**typed, **status, **content})

    def delete(self, resource: str, name: str) -> None:
        key = ("default" if RESOURCES[resource].namespaced else "", name)
        if key in self.objects(resource):
            self.storage(resource).remove(RESOURCES[resource].collection, key)
            self.moved.notify()

    def write(self, resource: str, info: RequestInfo, document: Json, content_type: str) -> tuple[int, Json]:
        """Handle a POST, or a PATCH of an object or its status. StatusError if the cloud refuses it."""
        if info.method == "POST":
            key = info.namespace, document["metadata"]["name"]
            if key in self.objects(resource):
                raise StatusError(409, "AlreadyExists", f"{key[1]} already exists")
            self._commit(resource, key, document)
            return 201, self.objects(resource)[key]
        found = self.get(resource, info)
        changed = apply_patch(PatchType(content_type), found["kind"], found, document)
        if any(changed["metadata"][name] != found["metadata"][name] for name in ("uid", "resourceVersion")):
            raise StatusError(409, "Conflict", "the object is another one, or of another version")
        self._commit(resource, key_of(found), changed)
        return 200, self.get(resource, info)

    def get(self, resource: str, info: RequestInfo) -> Json:
        found = self.objects(resource).get((info.namespace, info.name))
        if found is None:
            raise not_found(resource, info.name)
        return found

    def compact(self) -> None:
        """Drop the history: older versions get 410."""
        for storage in self._storages:
            storage.compact()

    def oldest(self, resource: str) -> int:
        """Return the oldest version at which a watch may start."""
        return self.storage(resource).collection(RESOURCES[resource].collection).oldest

    def may_be_former(self, resource: str, version: str) -> bool:
        return int(version or 0) <= self._former.get(self.storage(resource), -1)

    def gaps_forced(self, sources: Iterable[Source]) -> int:
        """Return how often sources had to list because the cloud allows no watch from their version."""
        pasts = [(each.list_watch.type.resource, each.store.history) for each in sources]
        known = [(name, past) for name, past in pasts if name in RESOURCES]
        return sum(past.gap_count for name, past in known if 0 < past.newest_gap < self.oldest(name))

    def back_up(self) -> None:
        self._backup = {storage: storage.snapshot() for storage in self._storages}

    def restore(self, *, bumped: bool) -> None:
        """Restore the backup. `bumped` is etcd's --bump-revision and --mark-compacted."""
        for storage, snapshot in self._backup.items():
            newest = storage.version
            storage.restore(snapshot)
            if bumped:
                storage.version = newest + BUMP
                storage.compact()
            self._former[storage] = max(newest, storage.version)

    @property
    def _storages(self) -> list[Storage]:
        return [self._main, *self._others.values()]

    def _commit(self, resource: str, key: Key, after: Json) -> None:
        before, after = self.objects(resource).get(key), copy.deepcopy(after)
        self._uids += before is None
        was = before["metadata"] if before is not None else {"uid": f"u{self._uids}", "resourceVersion": ""}
        after["metadata"] |= {name: was[name] for name in ("uid", "resourceVersion")}
        if after != before:
            storage = self.storage(resource)
            # No version identifies a history if two histories wrote an object at the same one.
            while (resource, key, storage.version + 1) in self._written:
                storage.version += 1
            self._written.add((resource, key, storage.version + 1))
            storage.write(RESOURCES[resource].collection, key, after)
            self.moved.notify()


def key_of(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version_of(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])
