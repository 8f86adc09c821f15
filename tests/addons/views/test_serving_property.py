"""Clients of `Serving` under random events: at each quiet moment their state is what the rules show of the cloud.
Clients in both encodings, with and without selectors, watch and reopen at their last version, like client-go. Meanwhile
objects, inputs and rules change, watches and connections end, clients read slowly, and the hub restarts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from addons.filters.builtin.topology import SCOPE_ANNOTATION
from addons.rules.issued_versions import RulesEdit
from addons.views.bounds import quotas
from kube.errors import StatusError
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import WatchFrame
from kube.wire.encoding import Encoding
from tests.addons.support.exchange import Exchange
from tests.addons.support.hub_world import HUB_TOKEN, NODE, HubWorld, Watching
from tests.addons.support.observed import until
from tests.addons.support.samples import SERVICES, SLICES, endpoint_slice, service
from tests.addons.support.source_parts import cut_watches
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User

WATCH = "watch=true&allowWatchBookmarks=true"
FROM_THE_STATE = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
BASE = {"cache_agents": "cached,reader"}
DISCARD = {"filter_discardcloudservice": "cached/services"}
TOPOLOGY = {"filter_servicetopology": "reader/endpointslices"}
TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
ENOUGH = quotas.MAX_HUB_VIEWS
PATIENCE = 20.0
"""Seconds after which a difference counts as permanent."""

type State = dict[str, Any]
type Step = tuple[str, int]


class Client:
    """A reflector like client-go's."""

    def __init__(self, world: World, target: str, component: str, encoding: Encoding) -> None:
        self.world, self.target, self.component, self.encoding = world, target, component, encoding
        self.state: State = {}
        self.version = ""
        self.reads = asyncio.Event()
        self.reads.set()
        self.response: Exchange | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"client of {self.target}")

    async def stop(self) -> None:
        """Abort the connection, as the end of the hub's process does; raise an error of the client itself."""
        assert self._task is not None
        self.reads.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _run(self) -> None:
        while True:
            try:
                await self._watch()
            except (EOFError, TimeoutError, ConnectionError, ValueError):
                await asyncio.sleep(0.005)

    def leave(self) -> None:
        """End the watch from the client's side."""
        if self.response is not None:
            self.response.close()

    async def _watch(self) -> None:
        start = f"resourceVersion={self.version}" if self.version else FROM_THE_STATE
        target = f"{self.target}{'&' if '?' in self.target else '?'}{WATCH}&{start}"
        parts = self.world.parts
        new: State | None = {} if not self.version else None
        context = parts.context(target, self.component, accept=self.encoding.value)
        async with parts.open(context, target) as self.response:
            if await self.response.status != 200:
                raise EOFError
            watch = Watching(self.response)
            while True:
                await self.reads.wait()
                frame = await watch.next(PATIENCE)
                if frame.status is not None:
                    self.version = "" if frame.status.code == 410 else self.version
                    raise EOFError
                new = self._take(frame, new)

    def _take(self, frame: WatchFrame, new: State | None) -> State | None:
        """Apply an event to the state, or to the `new` state, which a bookmark completes."""
        obj = decode_object(self.encoding, frame.api_version, frame.kind, frame.raw)
        target = self.state if new is None else new
        if frame.type == "BOOKMARK":
            if "k8s.io/initial-events-end" in obj.annotations:
                assert new is not None
                self.state, new = new, None
        elif frame.type == "DELETED":
            target.pop(obj.name, None)
        else:
            target[obj.name] = seen(obj)
        if new is None:
            self.version = obj.fields.child("metadata").text("resourceVersion")
        return new


class World:
    """A cloud, a hub on it, and its clients."""

    def __init__(self, cloud: ScriptableCloud, patched: pytest.MonkeyPatch) -> None:
        self.cloud = cloud
        self.rules: dict[str, str] = {**DISCARD, **TOPOLOGY}
        self.parts: HubWorld
        self.last_edit: RulesEdit | None = None
        self.patched = patched
        selected = f"{SERVICES}?labelSelector=app%3Dx"
        self.clients = [
            Client(self, target, component, encoding)
            for target, component in ((SERVICES, "cached"), (selected, "cached"), (SLICES, "reader"))
            for encoding in (Encoding.JSON, Encoding.PROTOBUF)
        ]

    def step(self, name: str, number: int) -> None:
        actions: dict[str, Callable[[int], None]] = {
            "write service": self.write_service,
            "delete service": lambda n: self.delete("services", f"s{n}"),
            "write slice": self.write_slice,
            "delete slice": lambda n: self.delete("endpointslices", f"e{n}"),
            "annotate": self.annotate,
            "rules": self.edit,
            "leave": lambda n: self.clients[n % 6].leave(),
            "read slowly": lambda n: self.clients[n % 6].reads.clear(),
            "quota": lambda n: self.allow_views(0 if n % 2 else ENOUGH),
            "bookmarks": lambda _: self.parts.sources._remind(),
        }
        actions[name](number)

    def write_service(self, number: int) -> None:
        made = service(f"s{number % 4}", type=TYPES[self.cloud.store.version % 3])
        made["metadata"]["labels"] = {"app": "xy"[self.cloud.store.version // 3 % 2]}
        self.cloud.store.put(made)

    def write_slice(self, number: int) -> None:
        nodes = [NODE, "other"][: 1 + self.cloud.store.version % 2]
        self.cloud.store.put(endpoint_slice(f"e{number % 4}", nodes))

    def annotate(self, number: int) -> None:
        made = service("web", annotations={SCOPE_ANNOTATION: "kubernetes.io/hostname"} if number % 2 else {})
        self.cloud.store.put(made)

    def allow_views(self, number: int) -> None:
        """Set the number of views, beyond which the cloud answers unless the rules filter."""
        self.patched.setattr(quotas, "MAX_HUB_VIEWS", number)

    def edit(self, number: int) -> None:
        self.rules = {**(DISCARD if number & 1 else {}), **(TOPOLOGY if number & 2 else {})}
        self.parts.set_rules({**BASE, **self.rules})

    def delete(self, resource: str, name: str) -> None:
        with contextlib.suppress(StatusError):
            self.cloud.store.delete(resource, name, "default")

    def expected(self, client: Client) -> State:
        """Return the cloud's current objects, as the rules show them to a client."""
        if client.target == SLICES:
            annotated = self.cloud.store.get("services", "web", "default")["metadata"].get("annotations")
            local = bool(annotated) and "filter_servicetopology" in self.rules
            slices = self.cloud.store.list("endpointslices", "default")
            return {each["metadata"]["name"]: nodes_of(each, local=local) for each in slices}
        found = {}
        for each in self.cloud.store.list("services", "default"):
            kind, labels = each["spec"].get("type", ""), each["metadata"].get("labels", {})
            hidden = kind == "LoadBalancer" and "filter_discardcloudservice" in self.rules
            if not hidden and ("app" not in client.target or labels.get("app") == "x"):
                found[each["metadata"]["name"]] = (kind, labels.get("app", ""))
        return found

    async def settle(self) -> None:
        """Return when each client has the expected state; an assertion shows the difference."""
        self.allow_views(ENOUGH)
        for client in self.clients:
            client.reads.set()
        try:
            await until(lambda: all(client.state == self.expected(client) for client in self.clients))
        except TimeoutError:
            for client in self.clients:
                assert client.is_running()
                assert client.state == self.expected(client), (client.target, client.encoding)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def start(self) -> None:
        self.parts = await HubWorld(self.cloud, edit=self.last_edit).__aenter__()
        self.parts.set_rules({**BASE, **self.rules})
        for client in self.clients:
            client.start()

    async def stop(self) -> None:
        for client in self.clients:
            await client.stop()
        await self.parts.__aexit__()
        self.last_edit = self.parts.edit


def seen(obj: ApiObject) -> Any:
    """Return the part of an object that the test compares."""
    if obj.kind == "EndpointSlice":
        return sorted(each.text("nodeName") for each in obj.fields.children("endpoints"))
    return obj.fields.child("spec").text("type"), obj.labels.get("app", "")


def nodes_of(made: State, *, local: bool) -> list[str]:
    nodes = [each["nodeName"] for each in made["endpoints"]]
    return sorted(node for node in nodes if node == NODE or not local)


WRITES = ("write service", "delete service", "write slice", "delete slice", "annotate", "rules")
OTHERS = ("leave", "read slowly", "quota", "bookmarks", "settle", "restart", "cut", "turn")
STEPS = st.lists(st.tuples(st.sampled_from((*WRITES * 3, *OTHERS)), st.integers(0, 5)), max_size=40)


@settings(max_examples=25)
@given(STEPS)
@example([("annotate", 1), ("write slice", 0), ("restart", 0), ("rules", 0)])
@example([("write slice", 0), ("annotate", 1), ("rules", 1), ("leave", 4), ("rules", 3), ("leave", 4)])
@example(
    [
        ("write service", 1),
        ("write service", 2),
        ("write service", 3),
        ("rules", 1),
        ("settle", 0),
        ("restart", 0),
        ("rules", 0),
    ]
)
@example(
    [
        ("rules", 0),
        ("quota", 1),
        ("restart", 0),
        ("write service", 1),
        ("turn", 0),
        ("quota", 0),
        ("rules", 1),
    ]
)
@example(
    [("write service", 0), ("restart", 0), ("rules", 2), ("cut", 0), ("rules", 3), ("delete service", 0)]
)
def test_each_client_has_the_objects_that_the_rules_allow(steps: list[Step]) -> None:
    @asynccontextmanager
    async def running() -> AsyncIterator[World]:
        with pytest.MonkeyPatch.context() as patched:
            async with ScriptableCloud() as cloud:
                cloud.access.tokens[HUB_TOKEN] = User("hub")
                cloud.store.create(service("web"))
                world = World(cloud, patched)
                await world.start()
                try:
                    yield world
                finally:
                    await world.stop()

    async def play() -> None:
        async with running() as world:
            await world.settle()
            for name, number in steps:
                match name:
                    case "settle":
                        await world.settle()
                    case "restart":
                        await world.restart()
                    case "cut":
                        await cut_watches(world.cloud)
                    case "turn":
                        await asyncio.sleep(0)
                    case _:
                        world.step(name, number)
            await world.settle()

    asyncio.run(play())
