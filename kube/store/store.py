"""Stores the node's one copy of a list in the cloud: encoded objects by key, and their resourceVersion.

A store knows neither its source nor its readers: it takes lists and events, and notifies listeners of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import NamedTuple, Protocol

from kube.bounds import reached
from kube.concurrency.notifier import Notifier
from kube.packed_text import StoredText, packed
from kube.requests.continue_tokens import key_text
from kube.store.history import AppliedWrite, AppliedWrites, History, LastSeenEvent, Standing
from kube.store.many_labels import compact_labels
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import Codec
from kube.wire.codec_base import MAX_ITEMS, ObjectPeek, Peeks

MAX_STORE = 512 * 1024 * 1024
"""The most bytes of all objects, including those that a watch adds, as for all pages of a list."""
LABEL = 100
"""Bytes of memory that a label takes, roughly: the 20,000 labels of an object of 0.5 MB take 2 MB more."""
Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""


class Item:
    """One object at one version: its encoded bytes, and the fields that selectors need. Immutable.

    `stored` is the form in memory: JSON text is compressed, and so is an object that filters have changed. `raw`
    decompresses it at each call. Selectors match the unfiltered item, as they would at kube-apiserver.
    """

    __slots__ = ("_fields", "_unfiltered", "key", "labels", "store", "stored", "version")

    def __init__(
        self,
        store: Store,
        key: Key,
        version: int,
        labels: Mapping[str, str],
        form: StoredText,
        unfiltered: Item | None = None,
    ) -> None:
        self.store = store
        self.key = key
        self.version = version
        self.labels = labels
        self.stored = form
        self._unfiltered = unfiltered
        self._fields: dict[str, str] | None = None

    @property
    def raw(self) -> bytes:
        return bytes(self.stored)

    @property
    def unfiltered(self) -> Item:
        """The item as the cloud sent it."""
        return self._unfiltered or self

    def field(self, path: str) -> str:
        """The value of a field for selectors, "" if absent. Parsed fields are cached."""
        if self._unfiltered is not None:
            return self._unfiltered.field(path)
        if path == "metadata.name":
            return self.key[1]
        if path == "metadata.namespace":
            return self.key[0]
        self._fields = self._fields or {}
        if path not in self._fields:
            *parents, name = path.split(".")
            node = self.decode().fields
            for parent in parents:
                node = node.child(parent)
            self._fields[path] = node.text(name)
        return self._fields[path]

    def decode(self) -> ApiObject:
        """Decode a new object that the caller may write to; ValueError if malformed."""
        return decode_object(self.store.codec.encoding, self.store.api_version, self.store.kind, self.raw)

    def as_filtered(self, raw: bytes) -> Item:
        """This object as a chain of filters changed it."""
        if isinstance(self.stored, bytes):
            self.stored = packed(self.stored)
        form = self.store.codec.stored(raw)
        return Item(self.store, self.key, self.version, self.labels, form, self._unfiltered or self)

    def with_version(self, version: int) -> Item:
        """This object with another metadata.resourceVersion, as Kubernetes reports a deletion."""
        if version == self.version:
            return self
        codec = self.store.codec
        form = codec.stored(codec.with_version(self.raw, version))
        return Item(self.store, self.key, version, self.labels, form, self._unfiltered or self)


class Change(NamedTuple):
    """An object was added (no `old`), changed, or deleted (no `new`; `last` is its final state) at `version`."""

    version: int
    key: Key
    old: Item | None
    new: Item | None
    last: Item | None = None
    is_local: bool = False
    """True if the node made this change: the object keeps the cloud's version."""

    @property
    def is_deletion(self) -> bool:
        return self.new is None

    @property
    def size(self) -> int:
        """Bytes of the object, with its labels."""
        item = self.new or self.last or self.old
        return len(item.stored) + LABEL * len(item.labels) if item is not None else 0


class StoreListener(Protocol):
    """Notified of a store's changes, synchronously and in version order."""

    def changed(self, change: Change) -> None: ...

    def advanced(self) -> None:
        """Called when the version advances without a change (bookmark or end of a list, maybe with a gap)."""

    def restarted(self) -> None:
        """Called when versions went backwards: the cloud was restored from a backup, so every history is invalid."""


class Store:
    """Objects of one kind, complete as of `version`."""

    def __init__(self) -> None:
        self.version = 0
        self.given_version = 0
        """The newest version that a list gave a client, if newer than the store's: see `View.listing`."""
        self.history: History[Change] = History()
        self.last_event: LastSeenEvent | None = None
        """The newest event since the last list. None if a list brought the store to its version."""
        self.standing = Standing.GOOD
        self._former: dict[Key, Item] = {}
        self.former_version = 0
        """The newest version that clients got of the objects of a previous history, before the cloud was restored."""
        self.complete = False
        self._codec: Codec | None = None
        self.api_version = self.kind = ""
        self._items: dict[Key, Item] = {}
        self.applied: AppliedWrites[Item] = AppliedWrites()
        self.may_lag = False  # whether the next list comes from a leader, which may be behind the cloud
        self._is_in_order, self._bytes = True, 0
        self._listeners: list[StoreListener] = []
        self._notifier = Notifier()

    def empty(self) -> None:
        """Drop the objects of an unused store, to break the reference cycles with them."""
        self.complete = False
        self._items, self._former, self.applied, self.history = {}, {}, AppliedWrites(), History()

    def set_standing(self, standing: Standing) -> None:
        """Set how far the objects are trusted, in memory and on disk."""
        if self.complete and standing is not self.standing:
            self.standing = standing
            self._move(self.version)
            self._notifier.notify()

    @property
    def may_be_shown(self) -> bool:
        return self.complete and self.standing is Standing.GOOD

    @property
    def newest_given(self) -> int:
        """The newest version that a client can have from this store."""
        return max(self.version, self.given_version)

    def note_given(self, version: int) -> None:
        """Record that another store of these objects gave clients this version of the same history."""
        if self.complete:
            self.given_version = max(self.given_version, version)

    @property
    def has_previous_history(self) -> bool:
        """True if clients of a previous history may still connect: the store has not passed their versions."""
        return bool(self._former) and self.version <= self.former_version

    @property
    def codec(self) -> Codec:
        """The codec of the encoding in which the cloud answers; RuntimeError before the first list."""
        if self._codec is None:
            raise RuntimeError("the store has not been filled yet")
        return self._codec

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        """Bytes of all encoded objects."""
        return self._bytes

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the objects in the order of kube-apiserver's lists."""
        if not self._is_in_order:
            self._items = dict(sorted(self._items.items(), key=lambda entry: key_text(entry[0])))
            self._is_in_order = True
        return iter(self._items.values())

    def get(self, key: Key) -> Item | None:
        return self._items.get(key)

    def listen(self, listener: StoreListener) -> None:
        self._listeners.append(listener)

    def forget(self, listener: StoreListener) -> None:
        self._listeners.remove(listener)

    def replace(
        self, codec: Codec, api_version: str, kind: str, version: int, raws: Iterable[StoredText]
    ) -> None:
        """Replace the objects by those of a list. ValueError if one is malformed; then nothing has changed."""
        self.replace_items(codec, api_version, kind, version, self.items(codec, raws))

    def items(self, codec: Codec, raws: Iterable[StoredText], peeks: Peeks = ()) -> dict[Key, Item]:
        """Parse a list's objects for `replace_items`; ValueError as in `replace`. A thread may run this."""
        made = map(self._item, raws, repeat(codec), chain(peeks, repeat(None)))
        return {item.key: item for item in made}

    def replace_items(
        self, codec: Codec, api_version: str, kind: str, version: int, items: dict[Key, Item]
    ) -> None:
        """Replace the objects by those of a list. Listeners get the differences; a deletion has the list's version."""
        known, before = self.complete, self.version
        is_other = known and (self.standing is Standing.DISPROVED or version < self.newest_given)
        is_recoded = known and codec.encoding is not self.codec.encoding
        self.standing, self.last_event, ahead = Standing.GOOD, None, AppliedWrites[Item]()
        if known and not is_other and not is_recoded:
            ahead = self.applied.take_ahead(version, self._items, items) if self.may_lag else ahead
            self.api_version, self.kind = api_version, kind
            for change in sorted(self._difference(items, version), key=lambda change: change.version):
                self._commit(change)
            self.record_gap(before, version)
        else:
            if is_other:
                self._end_history(version)
            if is_recoded:
                self._former = {}
            self._codec, self.api_version, self.kind = codec, api_version, kind
            self._items, self._is_in_order = items, False
            self._bytes = sum(len(item.stored) for item in items.values())
            self.history.begin(version)
            self.complete = True
            if known:
                self.version, self.given_version = version, 0
                for listener in self._listeners:
                    listener.restarted()
        self.applied = ahead
        self.advance(version)

    def set_previous_objects(self, version: int, items: dict[Key, Item]) -> None:
        """Store a previous history's objects, which clients may hold at `version`, in the first list's encoding."""
        if not self.complete:
            self._former, self.former_version = items, max(self.former_version, version)

    def _end_history(self, version: int) -> None:
        """Record what clients may hold of this history. The next one begins at `version`."""
        self.former_version = max(self.former_version, self.newest_given)
        self._former = self.gone_after(version) | self._items
        size = sum(len(item.stored) for item in self._former.values())
        if len(self._former) > MAX_ITEMS or size > MAX_STORE:
            reached("objects of former histories")
            self._former = self._items

    def apply(self, event_type: str, raw: bytes, peek: ObjectPeek | None = None) -> None:
        """Apply an ADDED, MODIFIED or DELETED event; ValueError if it is malformed, or exceeds MAX_STORE."""
        item = self._item(raw, peek=peek)
        old = self._items.get(item.key)
        self.last_event = LastSeenEvent(item.key, item.version)
        known = old or self.applied.deleted(item.key)
        if self.applied.are_after(item.key, item.version):
            self._move(item.version)
        elif event_type == "DELETED" and known is not None:  # without `old` for the disk alone
            self._commit(Change(item.version or self.version, item.key, old, None, item))
        elif event_type != "DELETED" and _is_another(known, item):
            if len(self._items) - (old is not None) >= MAX_ITEMS or self._bytes_after(old, item) > MAX_STORE:
                raise ValueError(f"the objects are more than {MAX_ITEMS}, or than {MAX_STORE} bytes")
            self._commit(Change(item.version or self.version, item.key, old, item))
        self._notifier.notify()

    def amend(self, raw: bytes) -> None:
        """Replace an object by the node's form of it, until the cloud's next event; ValueError if it is malformed."""
        item = self._item(raw)
        old = self._items.get(item.key)
        if old is not None and old.version == item.version and old.raw != raw:
            self._commit(Change(item.version, item.key, old, item, is_local=True))
            self._notifier.notify()

    def apply_response(self, key: Key, raw: bytes | None) -> None:
        """Apply the object (None: deleted) in the cloud's response to a write, before the event of it arrives.

        The object has its former version, and a new object the store's, so that clients can resume from there.
        """
        old = self._items.get(key)
        if raw is not None:
            version = self.codec.peek(raw).version
            item = self._item(self.codec.with_version(raw, old.version if old is not None else self.version))
            is_known = self.applied.has(key, version) or (old is not None and old.raw == item.raw)
            if item.key == key and not is_known:
                self.applied[key] = AppliedWrite(version)
                self._commit(Change(item.version, key, old, item, is_local=True))
        elif old is not None:
            self.applied.delete(key, old)
            self._commit(Change(self.version, key, old, None, old, is_local=True))
        self._notifier.notify()

    def recall(self, key: Key, version: int) -> None:
        """Apply a write that an earlier process applied to an object: `version` is the write's, 0 for a deletion."""
        self.history.newest_local = self.version
        self.applied[key] = AppliedWrite(version)
        if not version:
            self.apply_response(key, None)

    def advance(self, version: int) -> None:
        """Advance the version without a change: after a bookmark of the watch, or at the end of a list."""
        if version > self.version:
            self._move(version)
        self._notifier.notify()

    def record_gap(self, before: int, version: int) -> None:
        """Record a gap in the history: the changes between these versions are unknown."""
        if version > before:
            self.history.record_gap(before, version)
            self._move(version)

    def _move(self, version: int) -> None:
        self.version = max(self.version, version)
        for listener in self._listeners:
            listener.advanced()

    def gone_after(self, version: int) -> dict[Key, Item]:
        """The last state of each object deleted after a version, or by an applied write. It may exist again."""
        gone = {}
        if version <= self.former_version:
            held = self._former.items()
            gone = {key: item.with_version(self.version) for key, item in held if key not in self._items}
        gone |= {key: item.with_version(self.version) for key, item in self.applied.deletions.items()}
        for change in self.history.after(version):
            last = change.last or change.old
            if change.is_deletion and last is not None:
                gone[change.key] = last.with_version(change.version)
        return gone

    def next_update(self) -> asyncio.Future[None]:
        """Return a future that the next event, bookmark or list completes."""
        return self._notifier.wait()

    def _item(self, raw: StoredText, codec: Codec | None = None, peek: ObjectPeek | None = None) -> Item:
        codec = codec or self.codec
        peek = peek or codec.peek(bytes(raw))
        form = codec.stored(raw) if isinstance(raw, bytes) else raw
        return Item(self, (peek.namespace, peek.name), peek.version, compact_labels(peek.labels), form)

    def _difference(self, items: Mapping[Key, Item], version: int) -> Iterator[Change]:
        for key, item in items.items():
            old = self._items.get(key)
            if _is_another(old, item):
                yield Change(item.version or version, key, old, item)
            elif key in self.applied and old is not None and old.raw != item.raw:  # the cloud undid the write
                yield Change(item.version, key, old, item, is_local=True)
        for key, last in (self.applied.deletions | self._items).items():
            if key not in items:
                yield Change(version, key, self._items.get(key), None, last.with_version(version))

    def _bytes_after(self, old: Item | None, new: Item | None) -> int:
        """Bytes of all objects after a change."""
        return self._bytes + (len(new.stored) if new else 0) - (len(old.stored) if old else 0)

    def _commit(self, change: Change) -> None:
        self._bytes = self._bytes_after(self._items.get(change.key), change.new)
        if not change.is_local:
            self.applied.pop(change.key, None)
        if change.new is None:
            self._items.pop(change.key, None)
        else:
            self._is_in_order = self._is_in_order and change.old is not None
            self._items[change.key] = change.new
        self.version = max(self.version, change.version)
        self.history.add(self.newest_given if change.is_local else self.version, change)
        for listener in self._listeners:
            listener.changed(change)


def _is_another(old: Item | None, item: Item) -> bool:
    """True if an object has changed. Some aggregated APIs give objects no version: then the bytes decide."""
    return old is None or old.version != item.version or (not item.version and old.raw != item.raw)
