"""Clients in a history: reflectors by client-go's rules, and the expected state of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key
from tests.addons.support.exchange import Exchange
from tests.histories.cloud import RESOURCES, key_of
from tests.histories.hub import Hub

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf,application/json"
"""The cloud in a history has only JSON, so PROTOBUF makes a second source with the same responses."""
TOKEN = "Bearer of.a.token"
METADATA = "meta.k8s.io/v1"
PAUSE = 0.8
"""Seconds from the end of a watch to the next request, client-go's first delay."""
PAGE_PAUSE = 0.3
"""Seconds that a client takes to read a page."""
LASTED = 3.0
"""Seconds after which a watch without a refusal counts as opened."""

type State = dict[Key, Json]


class Style(StrEnum):
    LIST = "a list at resourceVersion=0"
    FRESH = "a consistent list"
    NOT_OLDER = "a list that is not older than what the client has"
    EXACT = "a list of exactly the version that the client has"
    WATCH_LIST = "a WatchList"
    WATCH_AGAIN = "a WatchList that is not older than what the client has"
    PAGED = "a consistent list, page by page"
    PAGED_ANY = "a list at resourceVersion=0, page by page"


RETURNING = frozenset({Style.NOT_OLDER, Style.EXACT, Style.WATCH_AGAIN})
"""Styles of clients that list first when they return."""
PAGED = frozenset({Style.PAGED, Style.PAGED_ANY})


@dataclass(frozen=True, slots=True)
class Kind:
    """A component that reads a resource."""

    name: str
    component: str
    resource: str
    style: Style
    accept: str = JSON
    selector: str = ""
    watches_json: bool = False
    """True if the watch is in JSON, whatever the encoding of the list."""
    metadata_only: bool = False
    token: str = ""
    """The client's token; "" for a component of the node, which uses the hub's identity."""

    @property
    def path(self) -> str:
        resource = RESOURCES[self.resource]
        return ResourceType(resource.group, resource.version, resource.name).path()

    @property
    def is_part(self) -> bool:
        """True if its source has only the objects that it may read, or selects."""
        return bool(self.token or (self.selector and self.resource in ("nodes", "widgets")))

    def shown(self, obj: Json) -> Json:
        """Return an object in the form that this component stores."""
        if not self.metadata_only:
            return obj
        return {"apiVersion": METADATA, "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}


KINDS = {
    each.name: each
    for each in (
        Kind("list", "cached", "services", Style.LIST),
        Kind("watchlist", "cached", "services", Style.WATCH_LIST),
        Kind("fresh", "cached", "services", Style.FRESH),
        Kind("protobuf", "cached", "services", Style.LIST, PROTOBUF),
        Kind("mixed", "cached", "services", Style.LIST, PROTOBUF, watches_json=True),
        Kind("selected", "cached", "services", Style.LIST, selector="labelSelector=app%3Dx"),
        Kind("other", "other", "services", Style.NOT_OLDER),
        Kind("exact", "other", "services", Style.EXACT, PROTOBUF),
        Kind("again", "cached", "services", Style.WATCH_AGAIN),
        Kind("paged", "cached", "services", Style.PAGED),
        Kind("paged-any", "other", "services", Style.PAGED_ANY),
        Kind("metadata", "cached", "services", Style.LIST, metadata_only=True),
        Kind("plain", "plain", "services", Style.LIST),
        Kind("plain-fresh", "plain", "services", Style.FRESH),
        Kind("slices", "reader", "endpointslices", Style.LIST),
        Kind("slices-fresh", "reader", "endpointslices", Style.FRESH),
        Kind("events", "cached", "events", Style.LIST),
        Kind("widgets", "cached", "widgets", Style.FRESH),
        Kind("picked", "cached", "widgets", Style.LIST, selector="labelSelector=app%3Dx"),
        Kind("plain-widgets", "plain", "widgets", Style.LIST),
        Kind("own", "other", "services", Style.LIST, token=TOKEN),
        Kind("own-slices", "reader", "endpointslices", Style.FRESH, token=TOKEN),
        Kind("own-widgets", "cached", "widgets", Style.LIST, token=TOKEN),
        Kind("own-events", "other", "events", Style.WATCH_AGAIN, token=TOKEN),
        Kind("node", "kubelet", "nodes", Style.LIST, selector="fieldSelector=metadata.name%3Dn1"),
        Kind("nodes", "cached", "nodes", Style.WATCH_LIST),
    )
}


class Judge(Protocol):
    """Check each response to a client as it arrives."""

    @property
    def causes(self) -> int:
        """Return the number of events so far after which an issued version may be refused."""

    def asked(self, client: Reflector, verb: str) -> Callable[[State], None]:
        """Note that a consistent list or WatchList is requested; the returned function is called with the state."""

    def refused(self, client: Reflector) -> None:
        """Record that a version was refused although nothing has happened since it was issued."""


class Refused(Exception):
    """A list returned an error."""


class Expired(Exception):
    """A further page of a list has expired."""


class Reflector:
    """A client. It connects and disconnects, and retains its state meanwhile."""

    def __init__(self, kind: Kind, hub: Callable[[], Hub | None], judge: Judge) -> None:
        """`hub` is the currently running process, None between two."""
        self.kind = kind
        self.state: State = {}
        self.version = ""
        self.refusals = 0
        """Consecutive watches and lists that were refused with 410."""
        self.is_there = True
        self.is_lost = False
        """True if its version belongs to a cloud that was restored since, which kube-apiserver itself would not
        notice."""
        self.log: list[str] = []
        self._given_after = self._asked_after = 0
        """The number of causes for a refusal when its version, and that of its watch, was issued."""
        self._expired = False
        self._lists_anew = False
        self._is_slow = False
        """True if data of the current exchange may have been sent long before."""
        self._hub, self._judge = hub, judge
        self._exchange: Exchange | None = None
        self._task = asyncio.create_task(self._run(), name=f"client {kind.name}")

    def close(self) -> None:
        self._task.cancel()

    def come(self) -> None:
        self._lists_anew = not self.is_there and self.kind.style in RETURNING
        self.is_there = True

    def go(self) -> None:
        """Disconnect in the middle of any request."""
        self.is_there = False
        if self._exchange is not None:
            self._exchange.close()

    def read(self, reads: bool) -> None:
        """Set whether the client reads."""
        self._is_slow |= not reads
        if self._exchange is not None:
            self._exchange.reads.set() if reads else self._exchange.reads.clear()

    async def _run(self) -> None:
        while True:
            hub = self._hub()
            if hub is not None and self.is_there:
                try:
                    await self._follow(hub)
                except (ConnectionError, Refused) as error:
                    self.log.append(f"{type(error).__name__} {error}")
            await asyncio.sleep(PAUSE)

    async def _follow(self, hub: Hub) -> None:
        if self.kind.style is Style.WATCH_LIST and (not self.version or self._expired):
            await self._watch(hub, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", {})
            return
        begins = not self.version or self._expired or self._lists_anew
        if self.kind.style is Style.WATCH_AGAIN and begins:
            since = "" if self._expired or not self.version else f"&resourceVersion={self.version}"
            self._lists_anew = False
            await self._watch(hub, f"sendInitialEvents=true&resourceVersionMatch=NotOlderThan{since}", {})
            return
        if begins:
            await self._list(hub)
        await self._watch(hub, f"resourceVersion={self.version}", None)

    async def _list(self, hub: Hub) -> None:
        options, self._lists_anew = self._options(), False
        check = self._judge.asked(self, "list") if not options else None
        listed = await self._listed(hub, options)
        kind = RESOURCES[self.kind.resource]
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        self.state = {key_of(each): self.kind.shown(typed | each) for each in listed["items"]}
        # A past list of the cloud may be from a history that no copy of the hub has.
        self.is_lost &= "Exact" in options
        given_after = self._given_after
        self._was_given(listed["metadata"]["resourceVersion"])
        if "Exact" in options:  # an exact past version does not become newer
            self._given_after = given_after
        self.log.append(f"listed {options or 'anew'} at {self.version}: {sorted(self.state)}")
        if check is not None:
            check(self.state)

    async def _listed(self, hub: Hub, options: str) -> Json:
        """Return the response to a list. For a paged list: the first page, with the objects of all pages."""
        limit = "limit=1" if self.kind.style in PAGED else ""
        listed = await self._read(hub, "&".join(each for each in (options, limit) if each))
        while token := listed["metadata"].get("continue"):
            await asyncio.sleep(PAGE_PAUSE)
            try:
                page = await self._read(hub, f"{limit}&continue={token}")
            except Expired:  # like client-go's pager, which then requests everything at once
                return await self._read(hub, options)
            listed = {"metadata": page["metadata"], "items": listed["items"] + page["items"]}
        return listed

    async def _read(self, hub: Hub, options: str) -> Json:
        exchange = self._ask(hub, options)
        status, body = await exchange.status, await exchange.read_body()
        if status == 410 and "continue" in options:
            raise Expired
        if status != 200:
            self._expired |= status in (410, 504)
            raise Refused(f"list {options}: {status} {body[:200]!r}")
        found: Json = json.loads(body)
        return found

    def _options(self) -> str:
        """Return list options like client-go: from any version first, from the newest after a 410."""
        if self._expired:
            return ""
        match self.kind.style:
            case Style.LIST | Style.PAGED_ANY:
                return "resourceVersion=0"
            case Style.NOT_OLDER if self.version:
                return f"resourceVersion={self.version}&resourceVersionMatch=NotOlderThan"
            case Style.EXACT if self.version:
                return f"resourceVersion={self.version}&resourceVersionMatch=Exact"
        return ""

    async def _watch(self, hub: Hub, start: str, new: State | None) -> None:
        """Read a watch to its end. `new` collects its initial state; None if it has none."""
        self._asked_after = self._given_after
        check = self._judge.asked(self, "watch") if "resourceVersion=" not in start else None
        exchange = self._ask(hub, f"watch=true&allowWatchBookmarks=true&{start}")
        opened = asyncio.get_running_loop().call_later(LASTED, self._opened)
        self.log.append(f"watches {start}")
        try:
            status = await exchange.status
            if status != 200:
                self._refuse(status)
                raise Refused(f"watch {start}: {status} {(await exchange.read_body())[:200]!r}")
            async for line in _lines(exchange):
                begins = new is not None
                new = self._take(json.loads(line), new)
                if begins and new is None and check is not None:
                    check(self.state)
        finally:
            opened.cancel()
            exchange.close()

    def _take(self, event: Json, new: State | None) -> State | None:
        kind, obj = event["type"], event["object"]
        target = self.state if new is None else new
        if kind == "ERROR":
            self._refuse(obj["code"])
            raise Refused(f"watch from {self.version}: {obj['code']} {obj['message']}")
        self.log.append(f"{kind} {obj['metadata'].get('name', '')}@{obj['metadata']['resourceVersion']}")
        if kind == "DELETED":
            target.pop(key_of(obj), None)
        elif kind != "BOOKMARK":
            target[key_of(obj)] = self.kind.shown(obj)
        elif "k8s.io/initial-events-end" in obj["metadata"].get("annotations", {}) and new is not None:
            self.state, new = new, None
        if new is None:
            self._was_given(obj["metadata"]["resourceVersion"])
            self._opened()
        return new

    def _was_given(self, version: str) -> None:
        self.version, self._expired = version, False
        if not self._is_slow:
            self._given_after = self._judge.causes

    def _opened(self) -> None:
        self.refusals = 0

    def _refuse(self, code: int) -> None:
        self._expired |= code == 504
        if code == 410:
            if self._asked_after == self._judge.causes:
                self._judge.refused(self)
            self._expired, self.refusals = True, self.refusals + 1

    def _ask(self, hub: Hub, options: str) -> Exchange:
        query = "&".join(each for each in (self.kind.selector, options) if each)
        target = f"{self.kind.path}?{query}" if query else self.kind.path
        is_watch = "watch=" in options
        accept = JSON if self.kind.watches_json and is_watch else self.kind.accept
        if self.kind.metadata_only:
            as_kind = "PartialObjectMetadata" + "List" * (not is_watch)
            accept = f"{JSON};as={as_kind};g=meta.k8s.io;v=v1,{JSON}"
        headers = {"Accept": accept} | ({"Authorization": self.kind.token} if self.kind.token else {})
        self._is_slow = False
        self._exchange = hub.ask(self.kind.component, target, headers=headers)
        return self._exchange


async def _lines(exchange: Exchange) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in exchange.pieces():
        *complete, rest = (rest + piece).split(b"\n")
        for line in complete:
            yield line
