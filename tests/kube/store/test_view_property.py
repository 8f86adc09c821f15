"""Any sequence of what the cloud, the inputs, the rules and the clients do leaves every client with the true state.

The oracle is a dictionary of the cloud's objects, and a line for the chain's verdict on each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.store import view as view_module
from kube.store.listing import Form
from kube.store.projection import InputKey, Projection
from kube.store.scope import Scope
from kube.store.store import Key, Store
from kube.store.view import View
from kube.wire.encoding import Encoding
from tests.kube.support.toys import Seen, Toy, ToyChain, WatchClient, fill, scope, seen, state_of, tell

FIRST_VERSION = 10
KEYS = st.sampled_from([(namespace, name) for namespace in "ab" for name in "xy"])
INPUTS = ("i",)
RULES = ("", "p", "q")
"""Names of chains; "" is the one without filters."""
VERDICTS = ("keep", "drop", "10.9.9.1", "10.9.9.2")
SCOPES = (
    scope(),
    scope(namespace="a"),
    scope(labels="app=web"),
    scope(labels="!app"),
    scope(fields="metadata.name=x"),
    scope(fields="spec.clusterIP!=None"),
    scope("b", "app in (web,db)", "spec.clusterIP!=None"),
)
PLENTY = 10**9

type Operation = tuple[str, tuple[object, ...]]


@dataclass(eq=False, slots=True)
class Cloud:
    """Objects at versions, and the changes that the hub has not been told yet."""

    version: int = FIRST_VERSION
    objects: dict[Key, Toy] = field(default_factory=dict)
    untold: list[tuple[str, Toy]] = field(default_factory=list)
    linked: bool = True
    backup: tuple[int, dict[Key, Toy]] = (FIRST_VERSION, {})

    def put(self, toy: Toy) -> None:
        self.version += 1
        event_type = "MODIFIED" if toy.key in self.objects else "ADDED"
        self.objects[toy.key] = replace(toy, version=self.version)
        self.untold.append((event_type, self.objects[toy.key]))

    def delete(self, key: Key) -> None:
        if key in self.objects:
            self.version += 1
            self.untold.append(("DELETED", replace(self.objects.pop(key), version=self.version)))


class World:
    """A cloud, a store of it, the views on it and their clients. Operations are methods with simple arguments."""

    def __init__(self, encoding: Encoding, views: Sequence[tuple[Scope, bool, str]], trims: bool) -> None:
        self.encoding = encoding
        self.cloud = Cloud()
        self.store = Store()
        self.inputs: dict[InputKey, str] = {(rule, name): "keep" for rule in RULES for name in INPUTS}
        self.projections: dict[str, Projection] = {}
        self.clients: list[WatchClient] = []
        self.lost: set[WatchClient] = set()
        """Clients of a time before the cloud was restored: only a list helps them, as at a kube-apiserver."""
        self.trims = trims
        self.birth = FIRST_VERSION
        for name in "xy":
            self.cloud.put(Toy(name, "a", reads="i"))
        self.relist()
        self.views = [
            View(self.projection(rule), where, Form(metadata_only=metadata_only))
            for where, metadata_only, rule in views
        ]
        self.rules = [rule for _, _, rule in views]
        self.birth = self.store.version

    # -- the cloud and its watch --------------------------------------------------------------------------------

    def put(self, key: Key, app: str, address: str, reads: str) -> None:
        self.cloud.put(Toy(key[1], key[0], 0, app, address, reads))
        self.tell()

    def delete(self, key: Key) -> None:
        self.cloud.delete(key)
        self.tell()

    def elsewhere(self) -> None:
        """Another resource of the cluster changes."""
        self.cloud.version += 1

    def amend(self, key: Key, address: str) -> None:
        """The node writes what the cloud will take over: the object keeps its version.

        The node writes statuses, by which no scope selects: a headless service stays one.
        """
        toy = self.cloud.objects.get(key)
        if toy is None or toy.address == "None" or not self.cloud.linked:
            return
        written = replace(toy, address=address)
        self.store.amend(written.raw(self.encoding))
        for objects in (self.cloud.objects, self.cloud.backup[1]):
            if key in objects and objects[key].version == toy.version:
                objects[key] = written

    def lay(self, key: Key) -> None:
        toy, held = self.cloud.objects.get(key), self.store.get(key)
        if toy is None or held is None or held.version < toy.version:
            self.store.lay(key, None if toy is None else toy.raw(self.encoding))

    def tell(self) -> None:
        if self.cloud.linked:
            for event_type, toy in self.cloud.untold:
                tell(self.store, event_type, toy)
            self.cloud.untold.clear()

    def unlink(self) -> None:
        self.cloud.linked = False

    def resume(self) -> None:
        self.cloud.linked = True
        self.tell()

    def relist(self) -> None:
        """The watch could not be resumed: what was missed comes as one list."""
        self.cloud.linked = True
        self.cloud.untold.clear()
        fill(self.store, self.cloud.version, *self.cloud.objects.values(), encoding=self.encoding)

    def bookmark(self) -> None:
        if self.cloud.linked:
            self.store.advance(self.cloud.version)

    def back_up(self) -> None:
        self.cloud.backup = (self.cloud.version, dict(self.cloud.objects))

    def restore(self) -> None:
        version, objects = self.cloud.backup
        # A list without resourceVersion may have told a client of a later version than the store has.
        if version < max(view.version for view in self.views):
            self.lost.update(self.clients)
            self.birth = version
        self.lost.update(client for client in self.clients if client.version > version)
        for client in self.lost:
            if client.watcher is not None and client.watcher.ended:
                client.close()
        self.cloud.version, self.cloud.objects = version, dict(objects)
        self.relist()

    # -- inputs and rules ---------------------------------------------------------------------------------------

    def set_input(self, rule: str, name: str, verdict: str) -> None:
        if verdict:
            self.inputs[rule, name] = verdict
        else:
            self.inputs.pop((rule, name), None)
        for projection in self.projections.values():
            projection.inputs_changed([(rule, name)])

    def switch(self, number: int, rule: str) -> None:
        number %= len(self.views)
        projection = self.projection(rule)
        if not projection.is_pending:
            self.views[number].switch(projection)
            self.rules[number] = rule
        for name, unused in list(self.projections.items()):
            if not unused.in_use:
                del self.projections[name]
                unused.close()

    def projection(self, rule: str) -> Projection:
        if rule not in self.projections:
            chain = ToyChain(rule, self.inputs) if rule else None
            self.projections[rule] = Projection(self.store, chain)
        return self.projections[rule]

    # -- clients ------------------------------------------------------------------------------------------------

    def send_bookmark(self, number: int) -> None:
        self.views[number % len(self.views)].send_bookmark()

    def open_list(self, number: int, bookmarks: bool, fresh: bool) -> None:
        """A client that lists, and watches when it comes to it; `fresh` is a list without resourceVersion."""
        view = self.views[number % len(self.views)]
        if not view.projection.is_pending:
            client = WatchClient(view, bookmarks)
            client.take_list(self.cloud.version if fresh and not self.cloud.untold else 0)
            assert client.state == state_of(view)
            self.clients.append(client)

    def open_watch_list(self, number: int) -> None:
        view = self.views[number % len(self.views)]
        if not view.projection.is_pending:
            client = WatchClient(view)
            client.watch_list()
            assert client.state == state_of(view)
            self.clients.append(client)

    def watch(self, number: int) -> None:
        """Open or re-open a client's watch; one that is too late lists again."""
        if not self.clients:
            return
        client = self.clients[number % len(self.clients)]
        if client.watcher is not None or client.view.projection.is_pending:
            return
        if client in self.lost:
            client.take_list()
            self.lost.discard(client)
        try:
            client.watch()
        except StatusError:
            is_lost = self.store.history.is_in_gap(client.version)
            assert self.trims or is_lost or client.version <= self.birth, "history was there, and refused"
            client.take_list()
            # Where history lost what an input did at the present version, a list of it is no place to go on from
            # either: the client tries again later.
            with suppress(StatusError) if self.trims else nullcontext():
                client.watch()

    def close(self, number: int) -> None:
        if self.clients:
            self.clients[number % len(self.clients)].close()

    def end_watch(self, number: int) -> None:
        """The time of a watch is over. Its client reads the rest later, and resumes from there."""
        watcher = self.clients[number % len(self.clients)].watcher if self.clients else None
        if watcher is not None:
            watcher.end()

    def read(self, number: int) -> None:
        """A client takes what waits for it: then it knows all that its view shows."""
        if not self.clients:
            return
        client = self.clients[number % len(self.clients)]
        if client.watcher is None:
            return
        if client in self.lost and client.watcher.ended:
            with pytest.raises(StatusError) as raised:
                client.drain()
            assert raised.value.code == 410
            return
        client.drain()
        if client not in self.lost and not self.cut(client):
            assert client.state == state_of(client.view)

    @staticmethod
    def cut(client: WatchClient) -> bool:
        """Whether the view ended its watch, because it fell behind."""
        return client.watcher is None

    def check(self) -> None:
        """All is quiet: every input is known, every change told, every client has read on."""
        for rule in RULES:
            for name in INPUTS:
                self.set_input(rule, name, self.inputs.get((rule, name), "drop"))
        self.resume()
        # The cluster goes on, past every version that somebody was told before a restore.
        self.cloud.version += 100
        self.bookmark()
        for number, client in enumerate(self.clients):
            self.read(number)
            self.watch(number)
            self.read(number)
            assert client.watcher is not None
            assert client.state == state_of(client.view)
        for view, rule in zip(self.views, self.rules, strict=True):
            assert state_of(view) == self.truth(view, rule)
            last = WatchClient(view)
            last.take_list()
            assert last.state == self.truth(view, rule)

    def truth(self, view: View, rule: str) -> dict[Key, Seen]:
        """The oracle."""
        shown = {}
        for key, toy in self.cloud.objects.items():
            verdict = self.inputs[rule, toy.reads] if rule and toy.reads else "keep"
            if verdict != "drop" and selects(view.scope, toy):
                address = "" if verdict == "keep" else verdict
                shown[key] = seen(toy, metadata_only=view.form.metadata_only, address=address)
        return shown

    def end(self) -> None:
        for view in self.views:
            view.close()
        for client in self.clients:
            with suppress(StatusError):
                client.drain()
            assert client.watcher is None


def selects(where: Scope, toy: Toy) -> bool:
    """Select like each of SCOPES, by a second implementation."""
    return {
        SCOPES[0]: True,
        SCOPES[1]: toy.namespace == "a",
        SCOPES[2]: toy.app == "web",
        SCOPES[3]: not toy.app,
        SCOPES[4]: toy.name == "x",
        SCOPES[5]: toy.address != "None",
        SCOPES[6]: toy.namespace == "b" and toy.app in ("web", "db") and toy.address != "None",
    }[where]


NUMBERS = st.integers(0, 2)
VIEWS = st.tuples(st.sampled_from(SCOPES), st.booleans(), st.sampled_from(["p", "p", "q", ""]))


def operation(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(name), st.tuples(*arguments))


PUT = operation(
    "put",
    KEYS,
    st.sampled_from(["", "web", "db"]),
    st.sampled_from(["10.0.0.1", "None"]),
    st.sampled_from(["i", ""]),
)
SET_INPUT = operation(
    "set_input", st.sampled_from(RULES[1:]), st.sampled_from(INPUTS), st.sampled_from([*VERDICTS, ""])
)
OPEN_LIST = operation("open_list", NUMBERS, st.booleans(), st.booleans())
OPERATIONS = st.one_of(
    *[PUT] * 2,
    operation("delete", KEYS),
    *[SET_INPUT] * 2,
    operation("switch", NUMBERS, st.sampled_from(RULES)),
    operation("elsewhere"),
    operation("bookmark"),
    operation("unlink"),
    operation("resume"),
    operation("relist"),
    operation("back_up"),
    operation("restore"),
    operation("send_bookmark", NUMBERS),
    OPEN_LIST,
    operation("open_watch_list", NUMBERS),
    *[operation("watch", NUMBERS)] * 2,
    operation("close", NUMBERS),
    operation("end_watch", NUMBERS),
    operation("amend", KEYS, st.sampled_from(["10.0.0.3", "10.0.0.4"])),
    *[operation("lay", KEYS)] * 2,
    *[operation("read", NUMBERS)] * 2,
    operation("turn"),
)


async def turn() -> None:
    """A turn of the loop: history over its bounds is dropped."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def live(world: World, operations: Sequence[Operation]) -> None:
    for name, arguments in operations:
        if name == "turn":
            await turn()
        else:
            getattr(world, name)(*arguments)
    world.check()
    world.end()


@pytest.mark.parametrize("encoding", Encoding)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    views=st.lists(VIEWS, min_size=1, max_size=3),
    bytes_kept=st.sampled_from([PLENTY, PLENTY, 2000, 500, 1]),
    operations=st.lists(OPERATIONS, max_size=10) | st.lists(OPERATIONS, min_size=15, max_size=50),
)
def test_every_client_ends_with_the_truth(
    encoding: Encoding,
    views: list[tuple[Scope, bool, str]],
    bytes_kept: int,
    operations: list[Operation],
) -> None:
    async def run() -> None:
        await live(World(encoding, views, bytes_kept < PLENTY), operations)

    with (
        patch.object(view_module, "TRIM_DELAY", 0.0),
        patch.object(view_module, "RING_MAX_BYTES", bytes_kept),
    ):
        asyncio.run(run())
