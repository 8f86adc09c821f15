"""A node's line to the cloud: requests and watches, answered as by a kube-apiserver's watch cache, and faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from enum import Enum

from kube.errors import StatusError, expired
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, parse_request
from kube.requests.selectors import parse_field_selector, parse_label_selector
from tests.histories.cloud import RESOURCES, Cloud, Matches, Write, key_of

LATENCY = 0.002
"""Seconds from a request to the cloud."""
RETRY_AFTER = 10
"""Seconds that an overloaded cloud asks for."""


class Link(Enum):
    """What becomes of a request."""

    UP = "it is answered"
    DOWN = "nothing comes back"
    HALF = "a write is taken, and its answer is lost"
    BUSY = "it is answered with 429 and Retry-After"


class Line:
    """One node's way to the cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.link = Link.UP
        self.stalled: set[str] = set()
        """The resources whose watches bring nothing of what happens."""
        self.floods = ""
        """The resource that somebody writes whenever the node asks something."""
        self.impatient = 0
        """Requests of the hub itself to a cloud that had told it to wait."""
        self._wait_until = 0.0
        self._cuts = 0
        self._marks = 0

    def set(self, link: Link) -> None:
        self.link = link
        self.cloud.moved.notify()

    def cut(self) -> None:
        """Break off every watch."""
        self._cuts += 1
        self.cloud.moved.notify()

    def mark(self) -> None:
        """Send a bookmark to every watch."""
        self._marks += 1
        self.cloud.moved.notify()

    def stall(self, *resources: str) -> None:
        """Hold back what the watches of these resources bring, and of no others."""
        self.stalled = set(resources)
        self.cloud.moved.notify()

    async def answer(
        self, method: str, target: str, body: bytes, content_type: str, *, is_hubs: bool
    ) -> tuple[int, Json]:
        """The answer to anything but a watch. StatusError where it is one, ConnectionResetError where none comes.

        `is_hubs`: the hub asks for itself, and not for a component.
        """
        info = parse_request(method, target)
        resource = await self._reach(info, is_hubs=is_hubs)
        if info.verb == "get":
            return 200, self.cloud.get(resource, info)
        if info.verb == "list":
            return 200, self._list(resource, info)
        code, found = self.cloud.write(resource, info, json.loads(body), content_type)
        if self.link is Link.HALF:
            raise ConnectionResetError("the answer was lost")
        return code, found

    async def watch(self, target: str, *, is_hubs: bool) -> AsyncIterator[bytes]:
        """The lines of a watch, which end with ConnectionResetError when it is cut. Errors as `answer`."""
        info = parse_request("GET", target)
        return self._lines(await self._reach(info, is_hubs=is_hubs), info, self._cuts)

    async def _lines(self, resource: str, info: RequestInfo, cuts: int) -> AsyncIterator[bytes]:
        cloud, options, matches, marks = self.cloud, info.options, _selected(info), self._marks
        since, position = int(options.resource_version or 0), 0
        if options.send_initial_events or not since:
            since = cloud.version(resource)
            for obj in filter(matches, list(cloud.objects(resource).values())):
                yield _line("ADDED", obj)
            if options.send_initial_events:
                yield _bookmark(resource, since, {"k8s.io/initial-events-end": "true"})
        if since < cloud.parts[resource].floor:
            yield _line("ERROR", expired(f"too old resource version: {since}").to_dict())
            return
        while True:
            if self._cuts != cuts or self.link is Link.DOWN:
                raise ConnectionResetError("broken off")
            moved = cloud.moved.wait()
            if resource not in self.stalled:
                for write in cloud.parts[resource].log[position:]:
                    position += 1
                    line = _event(write, matches) if write.version > since else None
                    if line is not None:
                        yield line
                if marks != self._marks and options.allow_bookmarks:
                    marks = self._marks
                    yield _bookmark(resource, max(since, cloud.version(resource)), {})
            await moved

    async def _reach(self, info: RequestInfo, *, is_hubs: bool) -> str:
        """The resource that a request is for, once it has reached the cloud."""
        await asyncio.sleep(LATENCY)
        now = asyncio.get_running_loop().time()
        if self.link is Link.DOWN:
            raise ConnectionResetError("the cloud does not answer")
        self.impatient += is_hubs and now < self._wait_until
        if self.link is Link.BUSY:
            self._wait_until = max(self._wait_until, now + RETRY_AFTER)
            raise StatusError(429, "TooManyRequests", "please try again later", retry_after=RETRY_AFTER)
        if self.floods:
            self.cloud.put(
                self.floods, "busy", spec={"type": "ClusterIP", "ip": str(self.cloud.version(self.floods))}
            )
        name = info.type.resource if info.type is not None else ""
        if name not in RESOURCES:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        return name

    def _list(self, resource: str, info: RequestInfo) -> Json:
        kind, limit = RESOURCES[resource], info.options.limit
        version, found = self.cloud.list(resource, info.options, _selected(info))
        metadata: Json = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            found, metadata["continue"] = found[:limit], "more"
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": found,
        }


def _selected(info: RequestInfo) -> Matches:
    labels = parse_label_selector(info.options.label_selector)
    name = parse_field_selector(info.options.field_selector).exact("metadata.name")

    def matches(obj: Json) -> bool:
        namespace, named = key_of(obj)
        is_there = info.namespace in ("", namespace) and name in (None, "", named)
        return is_there and labels.matches(obj["metadata"].get("labels", {}))

    return matches


def _event(write: Write, matches: Matches) -> bytes | None:
    was = write.before if write.before is not None and matches(write.before) else None
    if write.after is not None and matches(write.after):
        return _line("MODIFIED" if was is not None else "ADDED", write.after)
    if was is None:
        return None
    return _line("DELETED", {**was, "metadata": {**was["metadata"], "resourceVersion": str(write.version)}})


def _bookmark(resource: str, version: int, annotations: Mapping[str, str]) -> bytes:
    kind = RESOURCES[resource]
    metadata = {"resourceVersion": str(version), "annotations": dict(annotations)}
    return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})


def _line(event_type: str, obj: Json) -> bytes:
    return json.dumps({"type": event_type, "object": obj}, separators=(",", ":")).encode() + b"\n"
