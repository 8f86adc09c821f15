"""A cloud in memory: resources in several version spaces, their history, and backups of all that."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kube.concurrency.pulse import Pulse
from kube.errors import StatusError, expired, not_found, too_large_version
from kube.json_type import Json
from kube.requests.request_info import ListOptions, RequestInfo
from kube.store.store import Key
from tests.cloud.scriptable.patches import PatchType, apply_patch

BUMP = 1000
"""What a restore with bumped revisions adds to the newest version that the cloud ever had."""
SPACES = {"main": 100, "events": 700, "aggregated": 10}
"""The version at which each space begins: events may have an etcd of their own, and an aggregated API has one."""


class Resource(NamedTuple):
    """A resource, and the version space that its versions are of."""

    root: str
    api_version: str
    kind: str
    space: str = "main"
    namespaced: bool = True


RESOURCES = {
    "services": Resource("/api/v1", "v1", "Service"),
    "endpointslices": Resource("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1", "EndpointSlice"),
    "configmaps": Resource("/api/v1", "v1", "ConfigMap"),
    "nodes": Resource("/api/v1", "v1", "Node", namespaced=False),
    "events": Resource("/api/v1", "v1", "Event", "events"),
    "widgets": Resource("/apis/agg.example.com/v1", "agg.example.com/v1", "Widget", "aggregated"),
}


class Write(NamedTuple):
    """One write of an object: None where it was not there before, or is not after."""

    version: int
    before: Json | None
    after: Json | None


@dataclass
class Part:
    """The objects of one resource, and what was written since `floor`."""

    objects: dict[Key, Json]
    floor: int
    log: list[Write] = field(default_factory=list)


type Matches = Callable[[Json], bool]


class Cloud:
    """The objects. `moved` is notified of each write."""

    def __init__(self) -> None:
        self.versions = dict(SPACES)
        self.parts = {name: Part({}, SPACES[each.space]) for name, each in RESOURCES.items()}
        self.moved = Pulse()
        self._uids = 0
        self.back_up()

    def objects(self, resource: str) -> dict[Key, Json]:
        return self.parts[resource].objects

    def version(self, resource: str) -> int:
        return self.versions[RESOURCES[resource].space]

    def put(self, resource: str, name: str, **content: Any) -> None:
        """Create or replace an object. Nothing happens where that changes nothing."""
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
            self._commit(resource, key, None)

    def write(self, resource: str, info: RequestInfo, document: Json, content_type: str) -> tuple[int, Json]:
        """A POST, or a PATCH of an object or its status. StatusError where the cloud refuses it."""
        objects = self.objects(resource)
        if info.method == "POST":
            key = info.namespace, document["metadata"]["name"]
            if key in objects:
                raise StatusError(409, "AlreadyExists", f"{key[1]} already exists")
            self._commit(resource, key, document)
            return 201, objects[key]
        found = self.get(resource, info)
        changed = apply_patch(PatchType(content_type), found["kind"], found, document)
        if changed["metadata"]["uid"] != found["metadata"]["uid"]:
            raise StatusError(409, "Conflict", "the UID in the precondition does not match")
        self._commit(resource, key_of(found), changed)
        return 200, self.get(resource, info)

    def get(self, resource: str, info: RequestInfo) -> Json:
        found = self.objects(resource).get((info.namespace, info.name))
        if found is None:
            raise not_found(resource, info.name)
        return found

    def list(self, resource: str, options: ListOptions, matches: Matches) -> tuple[int, list[Json]]:
        """The version and the objects of a list, as a kube-apiserver understands its options."""
        now, wanted, part = self.version(resource), int(options.resource_version or 0), self.parts[resource]
        state = dict(part.objects)
        if wanted > now:
            raise too_large_version(wanted, now)
        if options.resource_version_match == "Exact":
            if wanted < part.floor:
                raise expired(f"The resourceVersion for the provided list is too old: {wanted}")
            for write in reversed([each for each in part.log if each.version > wanted]):
                obj = write.before or write.after
                assert obj is not None
                state.pop(key_of(obj), None)
                if write.before is not None:
                    state[key_of(obj)] = write.before
            now = wanted
        return now, [obj for _, obj in sorted(state.items()) if matches(obj)]

    def compact(self) -> None:
        """Forget the history: older versions get 410."""
        for name, part in self.parts.items():
            part.floor = self.version(name)

    def back_up(self) -> None:
        self._backup = copy.deepcopy(
            (self.versions, {name: each.objects for name, each in self.parts.items()})
        )

    def restore(self, *, bumped: bool) -> None:
        """Come back from the backup. `bumped` is etcd's --bump-revision and --mark-compacted."""
        newest = self.versions
        self.versions, objects = copy.deepcopy(self._backup)
        if bumped:
            self.versions = {space: max(newest[space], at) + BUMP for space, at in self.versions.items()}
        self.parts = {name: Part(objects[name], self.version(name)) for name in self.parts}

    def _commit(self, resource: str, key: Key, after: Json | None) -> None:
        part, space = self.parts[resource], RESOURCES[resource].space
        before = part.objects.get(key)
        if after is not None:
            after = copy.deepcopy(after)
            self._uids += before is None
            was = (
                before["metadata"] if before is not None else {"uid": f"u{self._uids}", "resourceVersion": ""}
            )
            after["metadata"] |= {name: was[name] for name in ("uid", "resourceVersion")}
            if after == before:
                return
            after["metadata"]["resourceVersion"] = str(self.versions[space] + 1)
            part.objects[key] = after
        else:
            del part.objects[key]
        self.versions[space] += 1
        part.log.append(Write(self.versions[space], before, after))
        self.moved.notify()


def key_of(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version_of(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])
