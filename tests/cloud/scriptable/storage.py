"""Versioned storage: objects by collection, one version counter for all, and the history of changes. It uses nothing of
Kubernetes except metadata.resourceVersion, like etcd and the watch cache in kube-apiserver."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from kube.json_type import Json

type Key = tuple[str, str]
"""Namespace ("" for none) and name."""

FIRST_VERSION = 100
"""The initial version: a fresh real cluster has about this many after its bootstrap, and 1 is too old to watch from."""
HISTORY = 10_000
"""The maximum number of stored changes of a collection; a real server stores 75 s of them."""


class Compacted(LookupError):
    """The requested version is older than the history. `oldest` is the oldest available one."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"version {asked} is compacted, the oldest is {oldest}")
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class Stored:
    """An object at one version. `value` never changes: lists, history and watchers share it."""

    value: Json
    version: int
    encoded: dict[str, bytes] = field(default_factory=dict, compare=False)
    """Cached encodings by form: a list of a thousand objects is encoded once."""


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """A write. `stored` is the resulting object; for DELETED the last state, with the version of the deletion."""

    type: ChangeType
    key: Key
    stored: Stored
    previous: Stored | None

    @property
    def version(self) -> int:
        return self.stored.version


class Follower:
    """A listener that is notified of each change of a collection, at once and in order."""

    def changed(self, change: Change) -> None:
        raise NotImplementedError

    def restored(self) -> None:
        """Handle a restore of the storage: earlier notifications are invalid."""
        raise NotImplementedError


class Collection:
    def __init__(self, began: int, history: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.oldest = began
        """The oldest version whose state is still known, and from which a watch can start."""
        self._changes: deque[Change] = deque()
        self._history = history
        self._followers: dict[int, Follower] = {}

    def follow(self, follower: Follower) -> None:
        self._followers[id(follower)] = follower

    def unfollow(self, follower: Follower) -> None:
        self._followers.pop(id(follower), None)

    def record(self, change: Change) -> None:
        """Record the change and notify the followers."""
        if change.type is ChangeType.DELETED:
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.stored
        self._changes.append(change)
        if len(self._changes) > self._history:
            self.oldest = self._changes.popleft().version
        for follower in list(self._followers.values()):
            follower.changed(change)

    def changes_since(self, version: int) -> list[Change]:
        """Return the changes after that version; Compacted if some of them were dropped."""
        self._check(version)
        return [change for change in self._changes if change.version > version]

    def at(self, version: int) -> dict[Key, Stored]:
        """Return the objects at that version; Compacted if it is too old."""
        self._check(version)
        objects = dict(self.objects)
        for change in reversed(self._changes):
            if change.version <= version:
                break
            if change.previous is None:
                del objects[change.key]
            else:
                objects[change.key] = change.previous
        return objects

    def forget(self, version: int) -> None:
        """Drop the history up to that version."""
        self._changes = deque(change for change in self._changes if change.version > version)
        self.oldest = max(self.oldest, version)

    def reset(self, objects: Mapping[Key, Stored], version: int) -> None:
        """Replace the objects with these, without history."""
        self.objects = dict(objects)
        self._changes.clear()
        self.oldest = version
        for follower in list(self._followers.values()):
            follower.restored()

    def _check(self, version: int) -> None:
        if version < self.oldest:
            raise Compacted(version, self.oldest)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects at one version, as a backup of etcd."""

    version: int
    collections: Mapping[str, Mapping[Key, Stored]]


class Storage:
    """Collections by name. All writes go through `write` and `remove`, which increment the version."""

    def __init__(self, first_version: int = FIRST_VERSION, history: int = HISTORY) -> None:
        self.version = first_version
        self._began = first_version
        self._history = history
        self._collections: dict[str, Collection] = {}

    def collection(self, name: str) -> Collection:
        """Return the collection of a resource; empty before the first write."""
        if name not in self._collections:
            self._collections[name] = Collection(self._began, self._history)
        return self._collections[name]

    def write(self, name: str, key: Key, value: Json) -> Stored:
        """Store `value`, which then belongs to the storage, under the next version."""
        collection = self.collection(name)
        previous = collection.objects.get(key)
        stored = self._next(value)
        type_ = ChangeType.ADDED if previous is None else ChangeType.MODIFIED
        collection.record(Change(type_, key, stored, previous))
        return stored

    def remove(self, name: str, key: Key) -> Stored:
        """Delete an object; return its last state with the version of the deletion. KeyError if absent."""
        collection = self.collection(name)
        previous = collection.objects[key]
        last = {**previous.value, "metadata": dict(previous.value["metadata"])}
        stored = self._next(last)
        collection.record(Change(ChangeType.DELETED, key, stored, previous))
        return stored

    def compact(self) -> None:
        """Drop all older versions: a watch from before now, and the rest of a paged list, are expired."""
        self._began = self.version
        for collection in self._collections.values():
            collection.forget(self.version)

    def snapshot(self) -> Snapshot:
        objects = {name: dict(collection.objects) for name, collection in self._collections.items()}
        return Snapshot(self.version, objects)

    def restore(self, snapshot: Snapshot) -> Self:
        """Restore the snapshot and its version, like a cluster restored from a backup; open watches end."""
        self.version = self._began = snapshot.version
        for name, collection in self._collections.items():
            collection.reset(snapshot.collections.get(name, {}), snapshot.version)
        return self

    def _next(self, value: Json) -> Stored:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        return Stored(value, self.version)
