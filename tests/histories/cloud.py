"""A cloud in memory: resources in several version spaces, their history, watches, and the faults of a link.

It answers as a kube-apiserver with its watch cache does. Nothing opens a socket, so a history runs on a virtual clock.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kube.concurrency.pulse import Pulse
from kube.errors import StatusError, expired, not_found, too_large_version
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.requests.request_info import ListOptions, RequestInfo, parse_request
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.store.store import Key
from tests.cloud.scriptable.patches import PatchType, apply_patch

FIRST_VERSION = 100
BUMP = 1000
"""What a restore with bumped revisions adds to the newest version that the cloud ever had."""


class Resource(NamedTuple):
    """A resource, and the version space that its versions are of: an aggregated API has an etcd of its own."""

    path: str
    api_version: str
    kind: str
    space: str
    namespaced: bool = True


RESOURCES = {
    "services": Resource("/api/v1", "v1", "Service", "main"),
    "endpointslices": Resource("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1", "EndpointSlice", "main"),
    "configmaps": Resource("/api/v1", "v1", "ConfigMap", "main"),
    "nodes": Resource("/api/v1", "v1", "Node", "main", namespaced=False),
    "events": Resource("/api/v1", "v1", "Event", "events"),
    "widgets": Resource("/apis/agg.example.com/v1", "agg.example.com/v1", "Widget", "aggregated"),
}
SPACES = {"main": FIRST_VERSION, "events": 7 * FIRST_VERSION, "aggregated": FIRST_VERSION // 10}
"""The version at which each space begins."""


class Write(NamedTuple):
    """One write of an object: None where it was not there before, or is not after."""

    version: int
    before: Json | None
    after: Json | None


class Link(Enum):
    """What becomes of a request of the node."""

    UP = "it is answered"
    DOWN = "nothing is answered"
    HALF = "a write is taken, and its answer is lost"
    BUSY = "a write is answered with 429 and Retry-After"


@dataclass
class Part:
    """The objects of one resource, and its history since `floor`."""

    objects: dict[Key, Json] = field(default_factory=dict)
    log: list[Write] = field(default_factory=list)
    floor: int = 0


class Cloud:
    """The objects, and what the link to the node is like."""

    def __init__(self) -> None:
        self.versions = dict(SPACES)
        self.parts = {name: Part(floor=SPACES[each.space]) for name, each in RESOURCES.items()}
        self.link = Link.UP
        self.stalled: set[str] = set()
        """The resources whose watches bring nothing of what happens."""
        self.floods = ""
        """The resource that somebody writes whenever the node asks something."""
        self._moved = Pulse()
        self._cuts = 0
        self._marks = 0
        self._uids = 0
        self._backup = self._snapshot()
        self.busy: list[float] = []
        """When the node asked a cloud that had told it to wait, by the loop's clock."""
        self.busy_until = 0.0

    # -- what others write ----------------------------------------------------------------------------------------

    def put(self, resource: str, name: str, **content: Any) -> None:
        """Create or replace an object; nothing happens where that changes nothing."""
        kind, part = RESOURCES[resource], self.parts[resource]
        key = (content.pop("namespace", "default") if kind.namespaced else "", name)
        before = part.objects.get(key)
        metadata: Json = {"name": name, **content.pop("metadata", {})}
        if kind.namespaced:
            metadata["namespace"] = key[0]
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
        if before is not None and "status" in before:
            made.setdefault("status", before["status"])
        self._commit(resource, key, made)

    def delete(self, resource: str, name: str, namespace: str = "default") -> None:
        key = (namespace if RESOURCES[resource].namespaced else "", name)
        if key in self.parts[resource].objects:
            self._commit(resource, key, None)

    def objects(self, resource: str) -> dict[Key, Json]:
        return self.parts[resource].objects

    def version(self, resource: str) -> int:
        return self.versions[RESOURCES[resource].space]

    def _commit(self, resource: str, key: Key, after: Json | None) -> None:
        part, space = self.parts[resource], RESOURCES[resource].space
        before = part.objects.get(key)
        if after is not None:
            after = copy.deepcopy(after)
            self._uids += before is None
            now = after["metadata"]
            was = (
                before["metadata"] if before is not None else {"uid": f"u{self._uids}", "resourceVersion": ""}
            )
            now["uid"], now["resourceVersion"] = was["uid"], was["resourceVersion"]
            if after == before:
                return
            self.versions[space] += 1
            now["resourceVersion"] = str(self.versions[space])
            part.objects[key] = after
        else:
            self.versions[space] += 1
            del part.objects[key]
        part.log.append(Write(self.versions[space], before, after))
        self._moved.notify()

    # -- faults ---------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Forget the history: older versions get 410."""
        for name in self.parts:
            self.parts[name].floor = self.version(name)

    def cut(self) -> None:
        """Break off every watch of the node."""
        self._cuts += 1
        self._moved.notify()

    def mark(self) -> None:
        """Send a bookmark to every watch."""
        self._marks += 1
        self._moved.notify()

    def back_up(self) -> None:
        self._backup = self._snapshot()

    def restore(self, *, bumped: bool) -> None:
        """Come back from the backup. `bumped` is etcd's --bump-revision and --mark-compacted."""
        newest = dict(self.versions)
        self.versions, objects = copy.deepcopy(self._backup)
        if bumped:
            self.versions = {
                space: max(version, newest[space]) + BUMP for space, version in self.versions.items()
            }
        for name in self.parts:
            self.parts[name] = Part(objects[name], [], self.version(name))
        self.cut()

    def _snapshot(self) -> tuple[dict[str, int], dict[str, dict[Key, Json]]]:
        return copy.deepcopy((self.versions, {name: part.objects for name, part in self.parts.items()}))

    # -- what the node asks ---------------------------------------------------------------------------------------

    async def answer(self, method: str, target: str, body: bytes, content_type: str) -> tuple[int, Json]:
        """The answer to anything but a watch. StatusError where it is one, Unreachable where the link gives none."""
        info = parse_request(method, target)
        await self._reach()
        if method == "GET":
            return 200, self._read(info)
        if self.link is Link.BUSY:
            self.busy.append(asyncio.get_running_loop().time())
            raise StatusError(
                429, "TooManyRequests", "too many requests, please try again later", retry_after=10
            )
        code, found = self._write(info, body, content_type)
        if self.link is Link.HALF:
            raise Unreachable("the answer was lost")
        return code, found

    async def watch(self, target: str) -> AsyncIterator[bytes]:
        """The lines of a watch. Errors as `answer`; Unreachable when it is cut."""
        info = parse_request("GET", target)
        await self._reach()
        resource = self._resource(info)
        options, cuts = info.options, self._cuts
        since = int(options.resource_version or 0)
        return self._lines(resource, info, since, cuts, options.send_initial_events)

    async def _lines(
        self, resource: str, info: RequestInfo, since: int, cuts: int, wants_state: bool | None
    ) -> AsyncIterator[bytes]:
        matches, marks, position = _selected(info), self._marks, 0
        if wants_state or (wants_state is None and not since):
            since = self.version(resource)
            for obj in self._selection(resource, matches):
                yield _line("ADDED", obj)
            if wants_state:
                yield self._bookmark(resource, since, {"k8s.io/initial-events-end": "true"})
        if since < self.parts[resource].floor:
            yield _line("ERROR", expired(f"too old resource version: {since}").to_dict())
            return
        while True:
            if self._cuts != cuts or self.link is Link.DOWN:
                raise Unreachable("broken off")
            moved = self._moved.wait()
            if resource not in self.stalled:
                log = self.parts[resource].log
                for write in log[position:]:
                    position += 1
                    line = _event(write, matches) if write.version > since else None
                    if line is not None:
                        yield line
                if marks != self._marks and info.options.allow_bookmarks:
                    marks = self._marks
                    yield self._bookmark(resource, max(since, self.version(resource)), {})
            await moved

    def stall(self, *resources: str) -> None:
        """Hold back what the watches of these resources bring, and of no others."""
        self.stalled = set(resources)
        self._moved.notify()

    async def _reach(self) -> None:
        await asyncio.sleep(0.002)
        if self.link is Link.DOWN:
            raise Unreachable("the cloud does not answer")
        if self.floods:
            self.put(
                self.floods, "busy", spec={"type": "ClusterIP"}, status={"version": self.version(self.floods)}
            )

    def _resource(self, info: RequestInfo) -> str:
        name = info.type.resource if info.type is not None else ""
        if name not in RESOURCES:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        return name

    def _read(self, info: RequestInfo) -> Json:
        resource = self._resource(info)
        if info.verb == "get":
            return self._get(resource, info)
        kind, options = RESOURCES[resource], info.options
        version, found = self._as_of(resource, options, _selected(info))
        metadata: Json = {"resourceVersion": str(version)}
        if options.limit and len(found) > options.limit:
            found = found[: options.limit]
            metadata["continue"] = "more"
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": found,
        }

    def _as_of(
        self, resource: str, options: ListOptions, matches: Callable[[Json], bool]
    ) -> tuple[int, list[Json]]:
        now, wanted = self.version(resource), int(options.resource_version or 0)
        if wanted > now:
            raise too_large_version(wanted, now)
        if options.resource_version_match != "Exact":
            return now, self._selection(resource, matches)
        part = self.parts[resource]
        if wanted < part.floor:
            raise expired(f"The resourceVersion for the provided list is too old: {wanted}")
        state = dict(part.objects)
        for write in reversed(part.log):
            if write.version > wanted:
                obj = write.before or write.after
                assert obj is not None
                state.pop(key_of(obj), None)
                if write.before is not None:
                    state[key_of(obj)] = write.before
        return wanted, [obj for _, obj in sorted(state.items()) if matches(obj)]

    def _selection(self, resource: str, matches: Callable[[Json], bool]) -> list[Json]:
        return [obj for _, obj in sorted(self.parts[resource].objects.items()) if matches(obj)]

    def _get(self, resource: str, info: RequestInfo) -> Json:
        found = self.parts[resource].objects.get((info.namespace, info.name))
        if found is None:
            assert info.type is not None
            raise not_found(info.type.group_resource, info.name)
        return found

    def _write(self, info: RequestInfo, body: bytes, content_type: str) -> tuple[int, Json]:
        resource = self._resource(info)
        document = json.loads(body)
        if info.method == "POST":
            name = document["metadata"]["name"]
            if (info.namespace, name) in self.parts[resource].objects:
                raise StatusError(409, "AlreadyExists", f"{name} already exists")
            self._commit(resource, (info.namespace, name), document)
            return 201, self.parts[resource].objects[info.namespace, name]
        found = self._get(resource, info)
        changed = apply_patch(PatchType(content_type), found["kind"], found, document)
        if changed["metadata"]["uid"] != found["metadata"]["uid"]:
            raise StatusError(409, "Conflict", "the UID in the precondition does not match")
        self._commit(resource, key_of(found), changed)
        return 200, self._get(resource, info)

    def _bookmark(self, resource: str, version: int, annotations: Mapping[str, str]) -> bytes:
        kind = RESOURCES[resource]
        metadata = {"resourceVersion": str(version), "annotations": dict(annotations)}
        return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})


def key_of(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version_of(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _selected(info: RequestInfo) -> Callable[[Json], bool]:
    labels = parse_label_selector(info.options.label_selector)
    fields = parse_field_selector(info.options.field_selector)
    name = fields.exact("metadata.name")

    def matches(obj: Json) -> bool:
        namespace, named = key_of(obj)
        is_there = info.namespace in ("", namespace) and name in (None, "", named)
        return is_there and labels.matches(obj["metadata"].get("labels", {}))

    return matches


def _event(write: Write, matches: Callable[[Json], bool]) -> bytes | None:
    was = write.before if write.before is not None and matches(write.before) else None
    now = write.after if write.after is not None and matches(write.after) else None
    if now is not None:
        return _line("MODIFIED" if was is not None else "ADDED", now)
    if was is None:
        return None
    return _line("DELETED", {**was, "metadata": {**was["metadata"], "resourceVersion": str(write.version)}})


def _line(event_type: str, obj: Json) -> bytes:
    return json.dumps({"type": event_type, "object": obj}, separators=(",", ":")).encode() + b"\n"
