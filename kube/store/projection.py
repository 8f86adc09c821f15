"""Shows a store as a chain of filters changes it, and follows the store and the filters' inputs.

A projection holds only its differences from the store. For each object it records the inputs that the chain read, so
that a changed input costs only the objects that read it. Components with the same chain share one projection.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from typing import NamedTuple, Protocol

from kube.store.change_log import Log, Logs, ProjectedChange
from kube.store.resumption import Checkpoint, Overrides, digest_of
from kube.store.scope import EVERYTHING, Scope, ScopeIndex
from kube.store.store import Change, Item, Key, Store

EVALUATION_BATCH = 100
"""The number of objects evaluated before other tasks run: some milliseconds."""
EVALUATION_BATCH_BYTES = 256 * 1024
"""The most bytes of objects evaluated before other tasks run: a hundred of the largest would block the event loop for
ten seconds."""

InputKey = Hashable
"""Identifies one input of a filter, for example ("service", "default", "web")."""

type Why = tuple[tuple[str, object], ...]
"""The verdict of each filter that saw an object, for display. Empty if the object is unchanged."""


class Evaluation(NamedTuple):
    """The result of a chain for an item: the same item (unchanged), another one (changed) or None (hidden).

    `pending` means that an input is not known yet. The projection then shows the previous result, or hides a new
    object.
    """

    item: Item | None
    reads: frozenset[InputKey]
    pending: bool = False
    why: Why = ()


class Chain(Protocol):
    """Filters in a fixed order. The result depends only on the item and the inputs. A malformed item is hidden."""

    def evaluate(self, item: Item) -> Evaluation: ...

    def is_same(self, before: Item, after: Item) -> bool:
        """True if a client that has `before` needs no event for `after`, a later version of the same object."""


class ProjectionListener(Protocol):
    """Notified of changes of the projection, in version order."""

    def changed(self, change: ProjectedChange) -> None: ...
    def dropped(self, position: int, change: ProjectedChange) -> None:
        """Called when the log drops a change."""

    def hidden_changed(self, item: Item) -> None:
        """Called when the cloud changed an object that filters hide both before and after."""

    def gap_recorded(self) -> None:
        """Called after a list left a gap in the store's history, and after `changed` for each of its changes."""

    def restarted(self) -> None: ...


class Projection:
    """Shows a store as a chain changes it. Without a chain (None), all unfiltered components share the projection.

    `evaluate_some` evaluates long lists, and the many objects that one input may affect, in batches, so that the event
    loop keeps serving. Until an object is evaluated, the projection hides it, or shows its previous state.
    """

    def __init__(
        self, store: Store, chain: Chain | None, last_incompatible: int = 0, bound: Logs | None = None
    ) -> None:
        """Make a projection. `bound` is the bound that its log shares with other projections' logs."""
        self.store = store
        self.log = Log(store.version, self._dropped, store.__len__, bound)
        self.last_incompatible = last_incompatible
        """The newest version at which clients may hold a state from other inputs, also from before this projection."""
        self._chain = chain
        self._overrides = Overrides()
        self._why: dict[Key, Why] = {}
        """The reasons for the objects in `_overrides`."""
        self.former: Checkpoint | None = None
        """The checkpoint of the state that an earlier process showed with this chain."""
        self._was_complete = False
        """True once a client may have been given a state."""
        self.reasons: Counter[Why] = Counter()
        """The number of objects that the filters change or hide, by verdict."""
        self._reads: dict[Key, frozenset[InputKey]] = {}
        self._readers: dict[InputKey, set[Key]] = {}
        self._evaluated: dict[Key, Item] = {}
        self._pending: set[Key] = set()
        self._unevaluated: dict[Key, None] = {}
        """Objects that the chain has not evaluated since the store was listed."""
        self._stale: dict[Key, None] = {}
        """Objects with an input that has changed since their evaluation."""
        self._listeners: ScopeIndex[ProjectionListener] = ScopeIndex()
        self.evaluations = 0
        self._gap_count = store.history.gap_count
        self._evaluate_all()
        store.listen(self)

    def close(self) -> None:
        self.store.forget(self)
        self.log.close()

    def listen(self, listener: ProjectionListener, scope: Scope = EVERYTHING) -> None:
        """Notify a listener of the changes within a scope. It may also be notified of other changes."""
        self._listeners.add(listener, scope)

    def forget(self, listener: ProjectionListener) -> None:
        self._listeners.remove(listener)

    @property
    def in_use(self) -> bool:
        return bool(self._listeners)

    @property
    def is_pending(self) -> bool:
        """True if an object lacks an input or an evaluation. No client may get such an incomplete state."""
        return bool(self._pending or self._unevaluated or self._stale)

    @property
    def is_evaluated(self) -> bool:
        """True if the chain has evaluated all objects with the current inputs. If one object lacks an input, the rest
        of a list is not evaluated before the input is known: its objects would lack the same."""
        return not self._stale and (not self._unevaluated or bool(self._pending))

    @property
    def filtered(self) -> bool:
        """True if the projection depends on more than the store."""
        return self._chain is not None

    def outcomes(self) -> tuple[int, int, int]:
        """The numbers of objects that the chain keeps, changes, and hides. Unevaluated objects do not count."""
        hidden = sum(shown is None for shown in self._overrides.values())
        changed = len(self._overrides) - hidden
        return self.unchanged, changed, hidden

    @property
    def unchanged(self) -> int:
        """The number of objects that the chain keeps."""
        return len(self.store) - len(self._overrides) - len(self._unevaluated)

    def why(self, key: Key) -> Why:
        """The verdicts for an object that the filters change or hide."""
        return self._why.get(key, ())

    def get(self, key: Key) -> Item | None:
        """The object that the projection shows under this key; None if it is hidden or absent."""
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
        """Evaluate the next batch of a long list, or of the objects of a changed input.

        Listeners are not notified of the objects of a list, because no client has a state yet.
        """
        if self._stale:
            self._refresh_some()
        else:
            for item in self._slice_of(self._unevaluated):
                self._evaluate(item, None)
        self._note_complete()

    def _note_complete(self) -> None:
        self._was_complete |= self.store.complete and not self.is_pending

    def is_shown_by(self, inputs: Collection[InputKey]) -> bool:
        """True if clients may hold objects whose verdict depends on these inputs."""
        return self._was_complete and any(name in self._readers for name in inputs)

    def shows_as(self, checkpoint: Checkpoint) -> bool:
        """True if the projection shows the state of a checkpoint, apart from changes since then."""
        history, digest = self.store.history, self._overrides.digest
        if self.is_pending or not history.names_all_changed_after(checkpoint.version):
            return False
        changes = reversed([*history.after(checkpoint.version)])
        for key, old in {change.key: change.old for change in changes}.items():
            if old is not None and (was := self._shown(old)) is not old:
                digest ^= digest_of(key, was)
            if key in self._overrides:
                digest ^= digest_of(key, self._overrides[key])
        return digest == checkpoint.digest

    def checkpoint(self, elsewhere: int) -> Checkpoint | None:
        """A checkpoint of the projection for the next process; None if clients may hold another state.

        Up to version `elsewhere`, clients may hold another state, except those that the previous checkpoint covers.
        """
        former = self.former
        if former is not None and not any(self.store.history.after(former.version)) and self.shows_as(former):
            elsewhere = former.last_incompatible
        last_incompatible = max(elsewhere, self.last_incompatible)
        if self.is_pending or not self.store.complete or last_incompatible == sys.maxsize:
            return None
        return Checkpoint(
            self.store.version, self._overrides.digest, last_incompatible, self._overrides.hidden
        )

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        """Evaluate the objects with one of these inputs again, and notify listeners of visible differences.

        If there are many, `evaluate_some` evaluates the rest.
        """
        touched = {key for name in inputs for key in self._readers.get(name, ())}
        self._stale |= dict.fromkeys(sorted(touched, reverse=True))
        self._refresh_some()
        self._note_complete()

    def _refresh_some(self) -> None:
        for item in self._slice_of(self._stale):
            key = item.key
            if item is not self._evaluated.get(key):
                # The input is in this very store, which notified it first: `changed` follows for the object.
                continue
            before = self.get(key)
            after = self._evaluate(item, before)
            if differ(before, after):
                if self._was_complete:
                    self.last_incompatible = max(self.last_incompatible, self.store.newest_given)
                self._notify_changed(ProjectedChange(item.version, key, before, after, before, is_local=True))

    def _slice_of(self, waiting: dict[Key, None]) -> Iterator[Item]:
        """Take objects out of `waiting`, the last first, up to the bounds of one batch."""
        count = size = 0
        while waiting and count < EVALUATION_BATCH and size < EVALUATION_BATCH_BYTES:
            item = self.store.get(waiting.popitem()[0])
            if item is not None:
                yield item
                count, size = count + 1, size + len(item.stored)

    def changed(self, change: Change) -> None:
        """Evaluate a change of the store, and notify listeners if clients can see a difference."""
        if change.key in self._unevaluated:
            # For an unevaluated object, listeners get the difference to the result that it would have had before.
            del self._unevaluated[change.key]
            assert change.old is not None
            self._evaluate(change.old, None)
        self._stale.pop(change.key, None)
        before = self._overrides.get(change.key, change.old)
        after = self._evaluate(change.new, before) if change.new is not None else None
        if change.new is None:
            self._forget_object(change.key)
        if _is_news(change, before, after):
            self._notify_changed(self._projected(change, before, after))
        elif change.new is not None and before is None and change.key not in self._pending:
            for listener in self._listeners.concerned(change.key, (change.new,)):
                listener.hidden_changed(change.new)

    def advanced(self) -> None:
        if not self._was_complete:
            self._evaluate_all()
        if self._gap_count != self.store.history.gap_count:
            self._gap_count = self.store.history.gap_count
            for listener in self._listeners:
                listener.gap_recorded()

    def replay(self, since: int) -> Iterator[ProjectedChange]:
        """Yield the store's changes after a version, as the chain shows them with its current inputs."""
        for change in self.store.history.after(since):
            before, after = (self._shown(item) for item in (change.old, change.new))
            if _is_news(change, before, after):
                yield self._projected(change, before, after)

    def _projected(self, change: Change, before: Item | None, after: Item | None) -> ProjectedChange:
        last = before
        if change.new is None:
            last = self._deleted_state(before, change)
        elif after is None and before is not None:
            last = before.with_version(change.version)
        made = ProjectedChange(change.version, change.key, before, after, last, is_local=change.is_local)
        if self._chain is not None and before is not None and after is not None and before is not after:
            made.is_same = self._chain.is_same(before, after)
        return made

    def _shown(self, item: Item | None) -> Item | None:
        """Filter any state of an object, without recording its inputs."""
        if item is None or self._chain is None:
            return item
        evaluation = self._chain.evaluate(item)
        return None if evaluation.pending else evaluation.item

    def restarted(self) -> None:
        self._overrides, self.former = Overrides(), None
        self._reads, self._readers, self._pending = {}, {}, set()
        self._why, self.reasons = {}, Counter()
        self._stale = {}
        self._evaluated = {}
        self._evaluate_all()
        self.log.restart(self.store.version)
        for listener in self._listeners:
            listener.restarted()

    def _evaluate_all(self) -> None:
        self._was_complete = self.store.complete
        if self._chain is not None:
            self._unevaluated = {item.key: None for item in self.store}
            self.evaluate_some()

    def _deleted_state(self, before: Item | None, change: Change) -> Item | None:
        """The object of a DELETED event: its last state, filtered as the client saw it."""
        last = self._shown(change.last)
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
            self._overrides.forget(item.key)
            self._set_why(item.key, None)
        else:
            self._overrides.put(item.key, shown)
            if not evaluation.pending:
                self._set_why(item.key, evaluation.why)
        return shown

    def _forget_object(self, key: Key) -> None:
        self._index(key, frozenset())
        self._evaluated.pop(key, None)
        self._pending.discard(key)
        self._overrides.forget(key)
        self._set_why(key, None)

    def _set_why(self, key: Key, why: Why | None) -> None:
        """Store the verdicts for an object; None if the filters leave it unchanged, or if it is deleted."""
        before = self._why.pop(key, None)
        if why is not None:
            self._why[key] = why
        if before is why:
            return
        if before is not None:
            self.reasons[before] -= 1
            if not self.reasons[before]:
                del self.reasons[before]
        if why is not None:
            self.reasons[why] += 1

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

    def _dropped(self, position: int, change: ProjectedChange) -> None:
        for listener in self._listeners.concerned(change.key, (change.before, change.after)):
            listener.dropped(position, change)


def differ(one: Item | None, other: Item | None) -> bool:
    """True if clients can distinguish two states of an object; None is a hidden one."""
    return one is not other and (one is None or other is None or one.raw != other.raw)


def _is_news(change: Change, before: Item | None, after: Item | None) -> bool:
    """Whether a change gives clients another state, or the cloud's own object again."""
    return before is not after or (after is not None and after is change.new)
