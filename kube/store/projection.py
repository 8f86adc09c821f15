"""What a chain of filters makes of a store, kept up to date with the store and with the chain's inputs.

A projection holds only what differs from the store. It remembers which inputs each result was made from, so that
an input's change costs the objects it can touch and no others. Components with the same chain share one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kube.store.scope import EVERYTHING, Scope, ScopeIndex
from kube.store.store import Change, Item, Key, Store

EVALUATED_AT_ONCE = 100
"""Objects judged at once: some milliseconds of the event loop's time, up to twenty where each is very large."""

InputKey = Hashable
"""Names one input of a filter, for example ("service", "default", "web")."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a chain made of an item: the same item (kept), another one (changed) or None (hidden).

    `pending` when an input is not known yet: what was shown before stays, and nothing is shown of a new object.
    """

    item: Item | None
    reads: frozenset[InputKey]
    pending: bool = False


class Chain(Protocol):
    """Filters in their order. Pure but for its inputs, and total: an object that cannot be judged is hidden."""

    def evaluate(self, item: Item) -> Evaluation: ...

    def is_same(self, before: Item, after: Item) -> bool:
        """Whether a client that was shown `before` need not be told of `after`, a later version of the object."""


@dataclass(slots=True)
class ProjectedChange:
    """One change as a projection shows it. `before` and `after` are None where the object is hidden.

    `last` is what a DELETED event carries, `frames` the serialised events made of the step so far: all views of a
    projection send the same bytes. A step `is_local` is no event of the cloud: its object is as old as before.
    """

    version: int
    key: Key
    before: Item | None
    after: Item | None
    last: Item | None
    is_local: bool = False
    frames: dict[tuple[str, str], bytes] = field(default_factory=dict)


class ProjectionListener(Protocol):
    """Told of what a projection shows, in the order of versions."""

    def changed(self, change: ProjectedChange) -> None: ...
    def restarted(self) -> None: ...


class Projection:
    """A store seen through a chain; None is the chain without filters, which all who are not filtered share.

    A long list is judged a slice at a time, by `judge`; until then nothing is shown of the objects that are left.
    """

    def __init__(self, store: Store, chain: Chain | None) -> None:
        self.store = store
        self._chain = chain
        self._overrides: dict[Key, Item | None] = {}
        self._reads: dict[Key, frozenset[InputKey]] = {}
        self._readers: dict[InputKey, set[Key]] = {}
        self._evaluated: dict[Key, Item] = {}
        self._pending: set[Key] = set()
        self._unevaluated: dict[Key, None] = {}
        """What is not judged yet since the store was listed."""
        self._listeners: ScopeIndex[ProjectionListener] = ScopeIndex()
        self.evaluations = 0
        self._evaluate_all()
        store.listen(self)

    def close(self) -> None:
        self.store.forget(self)

    def listen(self, listener: ProjectionListener, scope: Scope = EVERYTHING) -> None:
        """Notify a listener of the changes that may concern a scope, and maybe of others."""
        self._listeners.add(listener, scope)

    def forget(self, listener: ProjectionListener) -> None:
        self._listeners.remove(listener)

    @property
    def in_use(self) -> bool:
        return bool(self._listeners)

    @property
    def is_pending(self) -> bool:
        """Whether objects are left or lack an input: a client must not be shown a state that is not judged in full."""
        return bool(self._pending or self._unevaluated)

    @property
    def is_evaluated(self) -> bool:
        """Whether each object was looked at."""
        return not self._unevaluated

    @property
    def filtered(self) -> bool:
        """Whether what is shown depends on more than the store."""
        return self._chain is not None

    def get(self, key: Key) -> Item | None:
        """What is shown under this key, None when the object is hidden or is not there."""
        if key in self._overrides:
            return self._overrides[key]
        return self.store.get(key) if key not in self._unevaluated else None

    def __iter__(self) -> Iterator[Item]:
        if not self._overrides and not self._unevaluated:
            yield from self.store
            return
        for item in self.store:
            shown = self._overrides.get(item.key, item)
            if shown is not None and item.key not in self._unevaluated:
                yield shown

    def evaluate_some(self) -> None:
        """Judge some more of the objects that are left. Nobody is told: nobody has been shown anything."""
        for _ in range(min(EVALUATED_AT_ONCE, len(self._unevaluated))):
            key, _ = self._unevaluated.popitem()
            item = self.store.get(key)
            assert item is not None
            self._evaluate(item, None)

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        """Evaluate again what was made from one of these inputs, and tell of each object that now looks different."""
        touched = {key: None for name in inputs for key in sorted(self._readers.get(name, ()))}
        for key in touched:
            item = self.store.get(key)
            if item is None or item is not self._evaluated.get(key):
                # An input that follows this very store was told first: the object's own change is still to come.
                continue
            before = self.get(key)
            after = self._evaluate(item, before)
            if not _same(before, after):
                self._notify_changed(ProjectedChange(item.version, key, before, after, before, is_local=True))

    def changed(self, change: Change) -> None:
        """Take a change of the store. One that clients need not be told of still moves the version on."""
        if change.key in self._unevaluated:
            # What comes next tells of the difference to what would have been shown.
            del self._unevaluated[change.key]
            assert change.old is not None
            self._evaluate(change.old, None)
        before = self._overrides.get(change.key, change.old)
        if change.new is None:
            after = None
            last = self._deleted_state(before, change)
            self._forget_object(change.key)
        else:
            after = self._evaluate(change.new, before)
            last = before.with_version(change.version) if after is None and before is not None else before
        if self._is_news(before, after, change):
            self._notify_changed(
                ProjectedChange(change.version, change.key, before, after, last, is_local=change.is_local)
            )

    def advanced(self) -> None:
        if not self._was_complete:
            self._evaluate_all()

    def restarted(self) -> None:
        self._overrides, self._reads, self._readers, self._pending = {}, {}, {}, set()
        self._evaluated = {}
        self._evaluate_all()
        for listener in self._listeners:
            listener.restarted()

    def _evaluate_all(self) -> None:
        self._was_complete = self.store.complete
        if self._chain is not None:
            self._unevaluated = {item.key: None for item in self.store}
            self.evaluate_some()

    def _is_news(self, before: Item | None, after: Item | None, change: Change) -> bool:
        if before is after:
            return after is not None and after is change.new
        if before is None or after is None or self._chain is None:
            return True
        return not self._chain.is_same(before, after)

    def _deleted_state(self, before: Item | None, change: Change) -> Item | None:
        """What a client is told of an object that went: its last state as it would have been shown."""
        last = change.last
        if last is not None and self._chain is not None:
            evaluation = self._chain.evaluate(last)
            last = None if evaluation.pending else evaluation.item
        if last is None and before is not None:
            last = before.with_version(change.version)
        return last

    def _evaluate(self, item: Item, before: Item | None) -> Item | None:
        if self._chain is None:
            return item
        self.evaluations += 1
        evaluation = self._chain.evaluate(item)
        self._index(item.key, evaluation.reads)
        self._evaluated[item.key] = item
        shown = evaluation.item
        if evaluation.pending:
            self._pending.add(item.key)
            shown = before
        else:
            self._pending.discard(item.key)
        if shown is item:
            self._overrides.pop(item.key, None)
        else:
            self._overrides[item.key] = shown
        return shown

    def _forget_object(self, key: Key) -> None:
        self._index(key, frozenset())
        self._evaluated.pop(key, None)
        self._pending.discard(key)
        self._overrides.pop(key, None)

    def _index(self, key: Key, reads: frozenset[InputKey]) -> None:
        known = self._reads.get(key, frozenset())
        if reads == known:
            return
        for name in known - reads:
            readers = self._readers[name]
            readers.discard(key)
            if not readers:
                del self._readers[name]
        for name in reads - known:
            self._readers.setdefault(name, set()).add(key)
        if reads:
            self._reads[key] = reads
        else:
            self._reads.pop(key, None)

    def _notify_changed(self, change: ProjectedChange) -> None:
        for listener in self._listeners.concerned(change.key, (change.before, change.after)):
            listener.changed(change)


def _same(one: Item | None, other: Item | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.raw == other.raw
