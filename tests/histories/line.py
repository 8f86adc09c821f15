"""A node's link to the cloud: requests and watches, answered like by kube-apiserver's watch cache, and faults."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from enum import Enum

from kube.errors import StatusError, expired
from kube.json_type import Json
from kube.requests.request_info import RequestInfo, parse_request
from tests.cloud.scriptable.lists import read_list
from tests.cloud.scriptable.resources import Resource
from tests.cloud.scriptable.selection import select
from tests.cloud.scriptable.storage import Change, Compacted, Follower
from tests.cloud.scriptable.watch import transition
from tests.histories.cloud import RESOURCES, Cloud

LATENCY = 0.002
"""Seconds from sending a request to its arrival at the cloud."""
RETRY_AFTER = 10
"""Seconds in the Retry-After header of an overloaded cloud."""
LONGEST = 1800.0
"""Seconds of a watch without a timeout."""
REVIEWS: dict[str, Json] = {
    "selfsubjectreviews": {"userInfo": {"username": "somebody"}},
    "selfsubjectaccessreviews": {"allowed": True},
}
"""The cloud's review of every token."""
NEVER = 0.0, 0.0
"""The start and end of an empty period of a Retry-After."""


class Link(Enum):
    UP = "it is answered"
    DOWN = "nothing comes back"
    HALF = "a write is taken, and its answer is lost"
    BUSY = "it is answered with 429 and Retry-After"
    CLOSED = "nobody may read; what is open goes on"


class Line:
    """A node's link to the cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.link = Link.UP
        self.stalled: set[str] = set()
        """The resources whose watches deliver no events."""
        self.floods = ""
        """The resource that is written whenever the node sends a request."""
        self.latency = LATENCY
        """Seconds that a request takes to the cloud; the response of a slow one takes as long."""
        self.impatient = 0
        """Requests that the hub itself sent during a Retry-After period."""
        self._pause = NEVER
        self._cuts = self._ends = 0
        self._marks = 0

    def forget(self) -> None:
        """Start without the state of the former process, for a new process."""
        self._pause = NEVER

    def set(self, link: Link) -> None:
        self.link = link
        self.cloud.moved.notify()

    def cut(self) -> None:
        self._cuts += 1
        self.cloud.moved.notify()

    def end(self) -> None:
        """End every watch in order, like a server that shuts down."""
        self._ends += 1
        self.cloud.moved.notify()

    def mark(self) -> None:
        """Send a bookmark to every watch."""
        self._marks += 1
        self.cloud.moved.notify()

    def stall(self, *resources: str) -> None:
        """Delay the events of these resources' watches only."""
        self.stalled = set(resources)
        self.cloud.moved.notify()

    async def answer(
        self, method: str, target: str, body: bytes, content_type: str, *, is_hubs: bool
    ) -> tuple[int, Json]:
        """Answer any request except a watch. StatusError for a refusal, ConnectionResetError without a response.
        `is_hubs`: the request is the hub's own, not a component's."""
        cuts, answer = self._cuts, await self._answer(method, target, body, content_type, is_hubs=is_hubs)
        if self.latency > LATENCY:
            await asyncio.sleep(self.latency)
        if self._cuts != cuts:
            raise ConnectionResetError("broken off")
        return answer

    async def _answer(
        self, method: str, target: str, body: bytes, content_type: str, *, is_hubs: bool
    ) -> tuple[int, Json]:
        info = parse_request(method, target)
        if info.type is not None and info.type.resource in REVIEWS:
            await self._travel(info, is_hubs=is_hubs)
            return 201, {"status": REVIEWS[info.type.resource]}
        resource = await self._reach(info, is_hubs=is_hubs)
        if info.verb == "get":
            return 200, self.cloud.get(resource.name, info)
        if info.verb == "list":
            selection = select(resource, info.namespace, info.options)
            page = read_list(self.cloud.storage(resource.name), selection, info.options)
            metadata = {"resourceVersion": str(page.version), "continue": page.continue_token}
            typed = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
            return 200, {**typed, "metadata": metadata, "items": [each.value for each in page.items]}
        code, found = self.cloud.write(resource.name, info, json.loads(body), content_type)
        if self.link is Link.HALF:
            raise ConnectionResetError("the answer was lost")
        return code, found

    async def watch(self, target: str, *, is_hubs: bool) -> AsyncIterator[bytes]:
        """Yield the lines of a watch, which ends with ConnectionResetError when it is cut. Errors as in `answer`."""
        info = parse_request("GET", target)
        cuts = self._cuts
        return self._lines(await self._reach(info, is_hubs=is_hubs), info, cuts)

    async def _lines(self, resource: Resource, info: RequestInfo, cuts: int) -> AsyncIterator[bytes]:
        storage, options, marks = self.cloud.storage(resource.name), info.options, self._marks
        loop, ends = asyncio.get_running_loop(), self._ends
        until = loop.time() + (options.timeout_seconds or LONGEST)
        selection = select(resource, info.namespace, options)
        collection, since = storage.collection(resource.collection), int(options.resource_version or 0)
        if options.send_initial_events or not since:
            since = storage.version
            for obj in filter(selection.matches, list(self.cloud.objects(resource.name).values())):
                yield _line("ADDED", obj)
            if options.send_initial_events:
                yield _bookmark(resource, since, {"k8s.io/initial-events-end": "true"})
        try:
            tap = Tap(collection.changes_since(since))
        except Compacted as error:
            yield _line("ERROR", expired(f"too old resource version: {since} ({error.oldest})").to_dict())
            return
        collection.follow(tap)
        timer = loop.call_at(until, self.cloud.moved.notify)
        try:
            while self._cuts == cuts and self.link is not Link.DOWN:
                if self._ends != ends or loop.time() >= until:
                    return
                moved = self.cloud.moved.wait()
                while tap.changes and resource.name not in self.stalled:
                    change = tap.changes.popleft()
                    event = transition(selection, change) if change.version > since else None
                    if event is not None and event.stored is not None:
                        yield _line(event.type, event.stored.value)
                if marks != self._marks and options.allow_bookmarks and not tap.changes:
                    marks = self._marks
                    yield _bookmark(resource, max(since, storage.version), {})
                await moved
        finally:
            timer.cancel()
            collection.unfollow(tap)
        raise ConnectionResetError("broken off")

    async def _reach(self, info: RequestInfo, *, is_hubs: bool) -> Resource:
        """Return the resource of a request once it has reached the cloud."""
        await self._travel(info, is_hubs=is_hubs)
        name = info.type.resource if info.type is not None else ""
        if name not in RESOURCES:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        return RESOURCES[name]

    async def _travel(self, info: RequestInfo, *, is_hubs: bool) -> None:
        clock = asyncio.get_running_loop().time
        sent = clock()
        await asyncio.sleep(self.latency)
        if self.link is Link.DOWN:
            raise ConnectionResetError("the cloud does not answer")
        paused_at, until = self._pause
        self.impatient += is_hubs and paused_at < sent < until
        if self.link is Link.BUSY:
            if is_hubs:
                self._pause = (clock() if sent >= until else paused_at), clock() + RETRY_AFTER
            raise StatusError(429, "TooManyRequests", "please try again later", retry_after=RETRY_AFTER)
        if self.link is Link.CLOSED and info.method == "GET":
            raise StatusError(403, "Forbidden", "nobody may read")
        if self.floods:
            self.cloud.put(
                self.floods,
                "busy",
                spec={"type": "ClusterIP", "ip": str(self.cloud.storage(self.floods).version)},
            )


class Tap(Follower):
    """Events of a collection that a watch has yet to deliver."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self.changes = deque(changes)

    def changed(self, change: Change) -> None:
        self.changes.append(change)

    def restored(self) -> None:
        """End the watch."""


def _bookmark(resource: Resource, version: int, annotations: Mapping[str, str]) -> bytes:
    metadata = {"resourceVersion": str(version), "annotations": dict(annotations)}
    return _line(
        "BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    )


def _line(event_type: str, obj: Json) -> bytes:
    return json.dumps({"type": event_type, "object": obj}, separators=(",", ":")).encode() + b"\n"
