"""A cloud, a store of it, its views, and clients, with all operations of a random history. The oracle is a dictionary
of the cloud's objects, and one line for the chain's verdict on each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

import pytest

from kube.errors import StatusError
from kube.store.history import Past
from kube.store.listing import Form
from kube.store.projection import InputKey, Projection
from kube.store.resumption import Checkpoint
from kube.store.scope import Scope
from kube.store.store import Key, Store
from kube.store.view import View
from kube.wire.encoding import Encoding
from tests.kube.support.toys import Seen, Toy, ToyChain, WatchClient, fill, scope, seen, state_of, tell

FIRST_VERSION = 10
INPUTS = ("i",)
RULES = ("", "p", "q")
"""Names of chains; "" is the chain without filters."""
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


@dataclass(eq=False, slots=True)
class Cloud:
    """Objects at versions, and the changes that the hub has not received yet."""

    version: int = FIRST_VERSION
    objects: dict[Key, Toy] = field(default_factory=dict)
    untold: list[tuple[str, Toy]] = field(default_factory=list)
    log: list[tuple[str, Toy]] = field(default_factory=list)
    """All events of this history."""
    linked: bool = True
    backup: tuple[int, dict[Key, Toy]] = (FIRST_VERSION, {})

    def put(self, toy: Toy) -> None:
        self.version += 1
        event_type = "MODIFIED" if toy.key in self.objects else "ADDED"
        self.objects[toy.key] = replace(toy, version=self.version)
        self.note(event_type, self.objects[toy.key])

    def delete(self, key: Key) -> None:
        if key in self.objects:
            self.version += 1
            self.note("DELETED", replace(self.objects.pop(key), version=self.version))

    def note(self, event_type: str, toy: Toy) -> None:
        self.untold.append((event_type, toy))
        self.log.append((event_type, toy))


@dataclass(frozen=True, slots=True)
class Copy:
    """The disk: a store, its history, and the output of each chain."""

    version: int
    raws: tuple[bytes, ...]
    applied: dict[Key, int]
    past: Past
    checkpoints: dict[str, Checkpoint | None]


class World:
    """A cloud, a store of it, its views and their clients. Operations are methods with simple arguments."""

    def __init__(self, encoding: Encoding, views: Sequence[tuple[Scope, bool, str]], trims: bool) -> None:
        self.encoding = encoding
        self.cloud = Cloud()
        self.store = Store()
        self.inputs: dict[InputKey, str] = {(rule, name): "keep" for rule in RULES for name in INPUTS}
        self.projections: dict[str, Projection] = {}
        self.clients: list[WatchClient] = []
        self.lost: set[WatchClient] = set()
        """Clients from before a restore of the cloud: only a list can correct them, as at kube-apiserver."""
        self.trims = trims
        self.birth = FIRST_VERSION
        self.of_elsewhere = self.issued_under_other_rules = self.of_edits = 0
        """The newest versions that clients may have from a crashed process, from other rules of that process, and from
        other rules."""
        self.copy: Copy | None = None
        for name in "xy":
            self.cloud.put(Toy(name, "a", reads="i"))
        self.relist()
        self.rules = [rule for _, _, rule in views]
        self.views = [
            self.view(number, where, Form(metadata_only=metadata_only))
            for number, (where, metadata_only, _) in enumerate(views)
        ]
        self.birth = self.store.version

    # -- the cloud and its watch --------------------------------------------------------------------------------

    def put(self, key: Key, app: str, address: str, reads: str) -> None:
        self.cloud.put(Toy(key[1], key[0], 0, app, address, reads))
        self.tell()

    def delete(self, key: Key) -> None:
        self.cloud.delete(key)
        self.tell()

    def elsewhere(self) -> None:
        """Change another resource of the cluster."""
        self.cloud.version += 1

    def amend(self, key: Key, address: str) -> None:
        """Apply a local write that the cloud will accept: the object retains its version. Local writes are statuses, by
        which no scope selects: a headless service stays headless."""
        toy = self.cloud.objects.get(key)
        if toy is None or toy.address == "None" or not self.cloud.linked:
            return
        written = replace(toy, address=address)
        self.store.amend(written.raw(self.encoding))
        for objects in (self.cloud.objects, self.cloud.backup[1]):
            if key in objects and objects[key].version == toy.version:
                objects[key] = written
        for number, (event_type, logged) in enumerate(self.cloud.log):
            if (logged.key, logged.version) == (key, toy.version):
                self.cloud.log[number] = event_type, written
        self.write()  # local writes reach the disk before any other change

    def apply_response(self, key: Key) -> None:
        toy, held = self.cloud.objects.get(key), self.store.get(key)
        if toy is None or held is None or held.version < toy.version:
            self.store.apply_response(key, None if toy is None else toy.raw(self.encoding))
            self.write()

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
        """Deliver the missed changes as one list, as the watch could not be resumed."""
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
        # A consistent list may have given a client a later version than the store's.
        if version < max(view.version for view in self.views):
            self.lost.update(self.clients)
            self.birth = version
        self.lost.update(client for client in self.clients if client.version > version)
        for client in self.lost:
            if client.watcher is not None and client.watcher.ended:
                client.close()
        self.cloud.version, self.cloud.objects = version, dict(objects)
        self.cloud.log.clear()
        self.copy = None
        self.relist()

    # -- the disk, and a crash ----------------------------------------------------------------------------------

    def write(self) -> None:
        objects = [*self.store, *self.store.applied.deletions.values()]
        checkpoints = {
            rule: made.checkpoint(max(self.of_elsewhere, self.of_edits))
            for rule, made in self.projections.items()
        }
        raws, past = tuple(item.raw for item in objects), self.store.history.past(self.store.version)
        applied = {key: one.version for key, one in self.store.applied.items()}
        self.copy = Copy(self.store.version, raws, applied, past, checkpoints)

    def crash(self, verdict: str) -> None:
        """Kill the process, and start the next one with the data on disk. Clients retain their state. An input may
        change meanwhile."""
        copy, store = self.copy, self.store
        if copy is None or self.lost or any(view.projection.is_pending for view in self.views):
            return
        self.of_elsewhere = self.birth = max(self.of_elsewhere, *(view.version for view in self.views))
        self.issued_under_other_rules = self.of_edits
        self.cloud.version = max(self.cloud.version, self.of_elsewhere)
        self.store = Store()
        self.store.replace(store.codec, store.api_version, store.kind, copy.version, copy.raws)
        self.store.history.recall(copy.past)
        for key, at in copy.applied.items():
            self.store.recall(key, at)
        self.cloud.untold[:] = [each for each in self.cloud.log if each[1].version > copy.version]
        self.inputs |= {("p", "i"): verdict} if verdict else {}
        self.projections.clear()
        former, self.views = (
            self.views,
            [self.view(number, view.scope, view.form) for number, view in enumerate(self.views)],
        )
        for rule, made in self.projections.items():
            made.former = copy.checkpoints.get(rule)
        for client in self.clients:
            client.watcher, client.view = None, self.views[former.index(client.view)]
        for view in former:
            view.close()
        self.copy = None
        self.write()
        self.tell()

    def view(self, number: int, where: Scope, form: Form) -> View:
        rule = self.rules[number]
        made = View(
            self.projection(rule),
            *(where, form),
            elsewhere=lambda: self.of_elsewhere if self.rules[number] else self.issued_under_other_rules,
        )
        made.given_earlier = lambda: self.of_elsewhere
        return made

    # -- inputs and rules ---------------------------------------------------------------------------------------

    def set_input(self, rule: str, name: str, verdict: str) -> None:
        if verdict:
            self.inputs[rule, name] = verdict
        else:
            self.inputs.pop((rule, name), None)
        for projection in self.projections.values():
            if self.copy is not None and projection.is_shown_by([(rule, name)]):
                self.copy = replace(self.copy, checkpoints={})
            projection.inputs_changed([(rule, name)])

    def switch(self, number: int, rule: str) -> None:
        number %= len(self.views)
        projection = self.projection(rule)
        if not projection.is_pending:
            self.of_edits = max(self.of_elsewhere, *(view.version for view in self.views))
            self.issued_under_other_rules = max(self.issued_under_other_rules, self.of_elsewhere)
            for made in self.projections.values():
                made.former = None
            if self.copy is not None:
                self.copy = replace(self.copy, checkpoints={})
            view = self.views[number]
            if rule != self.rules[number]:
                self.lost.update(client for client in self.clients if client.view is view and client.is_ahead)
            view.switch(projection)
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
        """Add a client that lists, and later watches; `fresh` is a consistent list."""
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
        """Open or reopen a client's watch; a client that is too late lists again."""
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
            # If history lost an input's changes at the current version, a list at that version cannot be resumed from
            # either: the client retries later.
            with suppress(StatusError) if self.trims else nullcontext():
                client.watch()

    def close(self, number: int) -> None:
        if self.clients:
            self.clients[number % len(self.clients)].close()

    def end_watch(self, number: int) -> None:
        """End a watch by its timeout. Its client reads the rest later, and resumes from there."""
        watcher = self.clients[number % len(self.clients)].watcher if self.clients else None
        if watcher is not None:
            watcher.end()

    def read(self, number: int) -> None:
        """Let a client read its pending events: then it has the state of its view."""
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
        """True if the view ended its watch because it fell behind."""
        return client.watcher is None

    def check(self) -> None:
        """Wait until every input is known, every change is sent, and every client has read it; compare the states."""
        for rule in RULES:
            for name in INPUTS:
                self.set_input(rule, name, self.inputs.get((rule, name), "drop"))
        self.resume()
        # The cluster advances past every version that a client got before a restore.
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
        """Return the expected state of a client, by the oracle."""
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
    """Select like each of SCOPES, by an independent implementation."""
    return {
        SCOPES[0]: True,
        SCOPES[1]: toy.namespace == "a",
        SCOPES[2]: toy.app == "web",
        SCOPES[3]: not toy.app,
        SCOPES[4]: toy.name == "x",
        SCOPES[5]: toy.address != "None",
        SCOPES[6]: toy.namespace == "b" and toy.app in ("web", "db") and toy.address != "None",
    }[where]
