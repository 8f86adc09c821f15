"""Small Services, a toy filter chain and a client like client-go's, for tests of stores, projections and views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from kube.errors import StatusError
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.store.listing import Form
from kube.store.projection import Evaluation, InputKey, Projection
from kube.store.scope import Scope
from kube.store.store import Change, Item, Key, Store
from kube.store.view import View
from kube.store.watcher import Watcher
from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

READS = "reads"
"""The annotation that names the input which the toy chain reads for a service."""
EMPTY = {Encoding.JSON: b'{"apiVersion":"v1","kind":"Service"}', Encoding.PROTOBUF: b""}


@dataclass(frozen=True, slots=True)
class Toy:
    """A minimal Service. `reads` is the input that its filter reads, "" for none."""

    name: str = "x"
    namespace: str = "a"
    version: int = 1
    app: str = ""
    address: str = "10.0.0.1"
    reads: str = ""
    uid: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def raw(self, encoding: Encoding) -> bytes:
        obj = decode_object(encoding, "v1", "Service", EMPTY[encoding])
        metadata = obj.fields.child("metadata")
        metadata.set("name", self.name)
        metadata.set("namespace", self.namespace)
        metadata.set("resourceVersion", str(self.version))
        if self.uid:
            metadata.set("uid", self.uid)
        if self.app:
            metadata.set_mapping("labels", {"app": self.app})
        if self.reads:
            metadata.set_mapping("annotations", {READS: self.reads})
        obj.fields.child("spec").set("clusterIP", self.address)
        return obj.encode()


class Seen(NamedTuple):
    """The visible state of a toy for a client."""

    version: int
    app: str
    reads: str
    address: str


def seen(toy: Toy, *, metadata_only: bool = False, address: str = "") -> Seen:
    """Return a client's expected view of a toy; `address` is the one that a chain assigned."""
    return Seen(toy.version, toy.app, toy.reads, "" if metadata_only else address or toy.address)


def read(encoding: Encoding, api_version: str, kind: str, raw: bytes) -> tuple[Key, Seen]:
    """Decode an object like a client."""
    obj = decode_object(encoding, api_version, kind, raw)
    address = obj.fields.child("spec").text("clusterIP")
    return (obj.namespace, obj.name), Seen(
        obj.version, obj.labels.get("app", ""), obj.annotations.get(READS, ""), address
    )


def fill(store: Store, version: int, *toys: Toy, encoding: Encoding = Encoding.JSON) -> None:
    """Apply a complete list to the store."""
    store.replace(codec_for(encoding), "v1", "Service", version, [toy.raw(encoding) for toy in toys])


def filled(version: int, *toys: Toy, encoding: Encoding = Encoding.JSON) -> Store:
    store = Store()
    fill(store, version, *toys, encoding=encoding)
    return store


def tell(store: Store, event_type: str, toy: Toy) -> None:
    """Apply one watch event to the store."""
    store.apply(event_type, toy.raw(store.codec.encoding))


def scope(namespace: str = "", labels: str = "", fields: str = "") -> Scope:
    return Scope(namespace, parse_label_selector(labels), parse_field_selector(fields))


class RecordedInputs:
    """Records a store's notifications."""

    def __init__(self, store: Store) -> None:
        self.heard: list[tuple[int, Key, int | None, int | None] | str] = []
        self.changes: list[Change] = []
        self._store = store
        store.listen(self)

    def changed(self, change: Change) -> None:
        # The store must already have the new state here.
        assert self._store.get(change.key) is change.new
        assert self._store.version >= change.version
        self.changes.append(change)
        self.heard.append((change.version, change.key, _version(change.old), _version(change.new)))

    def advanced(self) -> None:
        self.heard.append(f"at {self._store.version}")

    def restarted(self) -> None:
        self.heard.append(f"restarted at {self._store.version}")


def _version(item: Item | None) -> int | None:
    return None if item is None else item.version


class ToyChain:
    """A chain that reads one input of each service with the annotation: "keep", "drop", or an address to assign; None
    is pending. The result for a pending one is the unfiltered service, which no client may get."""

    def __init__(self, name: str, inputs: Mapping[InputKey, str]) -> None:
        self._name = name
        self._inputs = inputs

    def evaluate(self, item: Item) -> Evaluation:
        obj = item.decode()
        name = obj.annotations.get(READS, "")
        if not name:
            return Evaluation(item, frozenset())
        reads = frozenset({(self._name, name)})
        verdict = self._inputs.get((self._name, name))
        if verdict is None:
            return Evaluation(item, reads, pending=True)
        if verdict == "drop":
            return Evaluation(None, reads, why=(("toy", "hidden"),))
        if verdict == "keep":
            return Evaluation(item, reads)
        obj.fields.child("spec").set("clusterIP", verdict)
        return Evaluation(item.as_filtered(obj.encode()), reads, why=(("toy", "changed"),))

    def is_same(self, before: Item, after: Item) -> bool:
        return before.raw == after.raw


def state_of(view: View) -> dict[Key, Seen]:
    """Return the view's state, without serving it as a list."""
    codec = view.codec
    api_version, kind = view.form.type_of("v1", "Service")
    return dict(read(codec.encoding, api_version, kind, view.form.raw(codec, item)) for item in view)


def body_of(view: View, at_least: int = 0) -> bytes:
    """Return the body of a list."""
    listing = view.listing(at_least)
    return bytes(listing.body(listing.formed(listing.items)))


def pending_frames(watcher: Watcher) -> list[bytes] | None:
    """Return the frames pending for a watcher, None if it would wait; [] and StatusError are its end."""
    coroutine = watcher.frames()
    try:
        coroutine.send(None)
    except StopIteration as done:
        frames: list[bytes] = done.value
        return frames
    coroutine.close()
    return None


class Event(NamedTuple):
    """An event as its client decodes it; a bookmark has no key."""

    type: str
    version: int
    key: Key | None = None
    seen: Seen | None = None


def events_of(view: View, frames: Iterable[bytes]) -> list[Event]:
    """Parse frames to events."""
    reader, events = view.codec.frames(), []
    for frame in reader.feed(b"".join(frames)):
        assert (frame.api_version, frame.kind) == view.form.type_of("v1", "Service")
        if frame.type == "BOOKMARK":
            events.append(Event("BOOKMARK", view.codec.peek(frame.raw).version))
        else:
            key, what = read(view.codec.encoding, frame.api_version, frame.kind, frame.raw)
            events.append(Event(frame.type, what.version, key, what))
    reader.close()
    return events


@dataclass(eq=False, slots=True)
class WatchClient:
    """A model of client-go's reflector and informer: a state, and the version of the last event. It checks each event
    as it applies it. The first `replayed` events of a watch are history, which may repeat events that the client has
    seen: those caused by inputs at exactly the version at which it resumed."""

    view: View
    bookmarks: bool = True
    state: dict[Key, Seen] = field(default_factory=dict)
    version: int = 0
    watcher: Watcher | None = None
    replayed: int = 0

    @property
    def is_ahead(self) -> bool:
        """True if the client watches from a version that the store, begun from an older copy, has not reached."""
        watcher = self.watcher
        return watcher is not None and not watcher.ended and self.view.is_ahead(watcher.seen_version)

    def take_list(self, at_least: int = 0) -> None:
        """Replace the state by a list."""
        codec = self.view.codec
        page = codec.decode_list(body_of(self.view, at_least))
        assert (page.api_version, page.kind) == self.view.form.type_of("v1", "Service")
        assert page.version == max(self.view.version, at_least)
        items = [read(codec.encoding, page.api_version, page.kind, raw) for raw in page.items]
        self.state = dict(items)
        assert len(self.state) == len(items)
        self.version = page.version

    def watch(self) -> None:
        """Continue from the last version; StatusError if the view refuses."""
        probe = self.view.watch(self.version, bookmarks=self.bookmarks)
        self.replayed = len(pending_frames(probe) or ())
        probe.end()
        self.watcher = self.view.watch(self.version, bookmarks=self.bookmarks)
        initial = events_of(self.view, list(self.watcher.initial_events()))
        after = self.replayed
        self.replayed = len(initial)
        for event in initial:
            self._apply(event)
        self.replayed = after

    def watch_list(self) -> None:
        """Read the state as events, and continue from there."""
        self.watcher = self.view.watch_list(bookmarks=self.bookmarks)
        self.replayed = 0
        self.state = {}
        for event in events_of(self.view, list(self.watcher.initial_events())):
            self._apply(event)

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.end()
            self.watcher = None

    def drain(self) -> list[Event]:
        """Read all pending events. Close the watch when it has ended; StatusError if it ended with an error."""
        taken: list[Event] = []
        before, replays = self.version, bool(self.replayed)
        while self.watcher is not None:
            try:
                frames = pending_frames(self.watcher)
            except StatusError:
                self.watcher = None
                raise
            if frames is None:
                break
            if not frames:
                self.close()
            for event in events_of(self.view, frames):
                self._apply(event)
                taken.append(event)
        if self.watcher is not None and self.bookmarks and not replays:
            assert self.version >= before, "a client was left with an older version than it had"
        return taken

    def _apply(self, event: Event) -> None:
        seen = self.watcher.seen_version if self.watcher is not None else 0
        assert event.version <= max(self.view.version, seen), "an event of the future"
        self.version = event.version
        is_repeated = self.watcher is not None and not self.watcher.skips_seen and event.version <= seen
        history = self.replayed > 0 or is_repeated
        self.replayed = max(0, self.replayed - 1)
        if event.key is None or event.seen is None:
            return
        had = self.state.get(event.key)
        if not history:
            assert (had is None) == (event.type == "ADDED"), f"{event} for a client that has {had}"
            assert had is None or had.version <= event.version, "an object went back in time"
            if event.type == "MODIFIED" and not self.view.form.metadata_only:
                assert had != event.seen, "an event that says nothing"
        if event.type == "DELETED":
            self.state.pop(event.key, None)
        else:
            self.state[event.key] = event.seen


def view_of(
    store: Store,
    inputs: dict[InputKey, str] | None = None,
    where: Scope | None = None,
    *,
    metadata_only: bool = False,
) -> View:
    projection = Projection(store, None if inputs is None else ToyChain("p", inputs))
    return View(projection, where or scope(), Form(metadata_only=metadata_only))


def watching(view: View, *, bookmarks: bool = True) -> WatchClient:
    """Return a client that has listed and watches."""
    client = WatchClient(view, bookmarks)
    client.take_list()
    client.watch()
    return client


def pending_events(client: WatchClient) -> list[tuple[str, str, int]]:
    """Return type, name and version of the events pending for a client."""
    return [short(event) for event in client.drain()]


def short(event: Event) -> tuple[str, str, int]:
    return event.type, event.key[1] if event.key else "", event.version


def after(view: View, since: int, *, bookmarks: bool = True) -> list[tuple[str, str, int]]:
    """Return the first events of a watch from this version."""
    watcher = view.watch(since, bookmarks=bookmarks)
    frames = pending_frames(watcher) or []
    watcher.end()
    return [short(event) for event in events_of(view, frames)]


def refusal(call: Callable[[], object]) -> int:
    with pytest.raises(StatusError) as raised:
        call()
    return raised.value.code
