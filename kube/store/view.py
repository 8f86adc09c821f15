"""Serves a component's view of a source as a list, a WatchList or a watch, as kube-apiserver's watch cache does.

A view selects objects of a projection by a scope, and encodes them in one form. Its clients know the projection's log
from a position on; watchers read it at their own pace. `kube.store.resumption.judge` decides from which version a
client may resume, by the rules of `docs/versions.md`, which comments cite by number; the view executes the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import batched

from kube.errors import HISTORY_RESTARTED, StatusError, expired
from kube.store.change_log import ProjectedChange
from kube.store.initial_events import InitialEvents, correction
from kube.store.listing import Form, Listing
from kube.store.projection import Projection, differ
from kube.store.resumption import Checkpoint, ClientState, Resumption, ShownState, judge
from kube.store.scope import Scope
from kube.store.store import Item, Key
from kube.store.stream_coding import PLAIN, StreamCoding, ViewEvent
from kube.store.watcher import NewEvents, Watcher, WatcherContext
from kube.wire.codec_base import ListMeta

MAX_CONFIRMED = 100
"""The most confirmed versions that a view remembers: versions of the cloud that it gave in lists before any event had
them."""
MATCH_BATCH = 200
"""The number of objects that a list matches before other tasks run. Each costs up to 0.1 ms if a field must be
parsed."""
HIDDEN = "HIDDEN"
"""Stands for an event's type, in a report for display, if filters hide the object and clients get no event."""

type Noted = Callable[[str, Key, int, int], None]
"""Called with an event's type, its object, the version after it, and its size in bytes."""


class View(WatcherContext):
    """Serves one projection in one scope and form, from the part of the projection's log that its clients know."""

    def __init__(
        self,
        projection: Projection,
        scope: Scope,
        form: Form,
        elsewhere: Callable[[], int] = lambda: 0,
        may_prove: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make a view.

        `elsewhere` returns the newest version at which clients may hold a state that no view made (rule 3).
        `may_prove` returns whether the checkpoint of an earlier process covers this view's clients.
        """
        super().__init__(projection, form, scope)
        self._elsewhere = elsewhere
        self._may_prove = may_prove
        self._last_incompatible = 0
        """The newest version at which clients may hold a state that other filters of this view made."""
        self._has_history = not projection.filtered
        """True if a client's version proves which events it has seen (rule 3)."""
        self.given_by_others: Callable[[], int] = lambda: 0
        """Returns the newest version that other sources of the resource, or the cloud, gave clients."""
        self.given_earlier: Callable[[], int] = lambda: 0
        """Returns the newest version that an earlier process may have given clients."""
        self._between = (0, 0)
        """Between these versions (first exclusive, second inclusive), clients may have a list of another view or of the
        cloud, made before or after a local event (rule 2)."""
        self._known: dict[Item, bool] = {}
        """Whether unfiltered objects match the scope, for those that `match` has just checked."""
        self._new: list[ViewEvent] = []
        """Events that `_deliver` will send in the next iteration of the event loop."""
        self._new_at = (0, 0)
        """`newest` and `first` of these events, as in `NewEvents`."""
        self.noted: Noted | None = None
        """Called, for display, for each event that clients are sent, and for each that filters hide from them."""
        self._begin_at_end()
        projection.listen(self, scope)

    def close(self) -> None:
        self.end_watches(None)
        self.noted = None
        self.projection.forget(self)

    def __iter__(self) -> Iterator[Item]:
        if self._everything:
            return iter(self.projection)
        return filter(self._matches, self.projection)

    def _matches(self, item: Item) -> bool:
        if self._everything:
            return True
        known = self._known.get(item.unfiltered)
        return self.scope.matches(item) if known is None else known

    @property
    def is_soon_matched(self) -> bool:
        """True if matching all objects now is cheap: there are few, or the result is cached."""
        return self._everything or bool(self._known) or len(self.projection.store) <= MATCH_BATCH

    async def match(self) -> None:
        """Match all objects against the selectors, in slices between which other tasks run.

        A list, a watch or a switch uses the results if it begins before the caller's next await.
        """
        if self._everything:
            return
        known: dict[Item, bool] = {}
        for part in batched(list(self.projection.store), MATCH_BATCH):
            known.update((item, self.scope.matches(item)) for item in part)
            await asyncio.sleep(0)
        self._known = known
        asyncio.get_running_loop().call_soon(known.clear)

    def listing(self, confirmed: int = 0) -> Listing:
        """Make a list. `confirmed` is a version at which the cloud has this state, 0 for none. The list carries it."""
        self._confirm(confirmed)
        self._begin_history()
        api_version, kind = self.form.listed_type(*self._type())
        return Listing(self.codec, api_version, kind, ListMeta(self.version), list(self), self.form)

    def watch_list(self, confirmed: int = 0, *, bookmarks: bool, coding: StreamCoding = PLAIN) -> Watcher:
        """Make a watcher that begins with the state, in `Watcher.initial_events`. `confirmed` as in `listing`."""
        self._confirm(confirmed)
        self._begin_history()
        return self._open(self.log.end, 0, bookmarks, coding, InitialEvents(list(self), is_list=True))

    def judge(self, since: int) -> Resumption:
        """Decide how a client resumes from the version `since`."""
        projection, store = self.projection, self.projection.store
        is_confirmed = self.has_confirmed(since)
        is_elsewhere = since <= max(self._elsewhere(), store.former_version)
        client = ClientState(
            since, is_confirmed, is_elsewhere, self._checkpoint_version(since) if is_elsewhere else 0
        )
        if (start := self._foreign_from(since)) is not None:
            if since <= store.version or is_confirmed:
                client = ClientState(since, is_confirmed, is_elsewhere=True)
            elif not is_elsewhere:
                client = ClientState(start)
        oldest = self.oldest if self._has_history else None
        last_incompatible = max(self._last_incompatible, projection.last_incompatible)
        return judge(
            client, ShownState(store.history, store.version, oldest, last_incompatible, projection.filtered)
        )

    @property
    def newest_earlier(self) -> int:
        """The newest version that an earlier process may have given a client, which may thus lack a local event; 0 for
        none.

        With filters, `_elsewhere` includes it.
        """
        has_local = bool(self.projection.store.history.first_local) and not self.projection.filtered
        return self.given_earlier() if has_local else 0

    def _foreign_from(self, since: int) -> int | None:
        """The version of the first local event that a client may lack, because its list came from elsewhere; None if it
        lacks none (rule 2)."""
        (first, last), first_local = self._between, self.projection.store.history.first_local
        lacked = [first] if first < since <= last else []
        if 0 < first_local < since <= self.newest_earlier:
            lacked.append(first_local)
        return min(lacked, default=None)

    def _checkpoint_version(self, since: int) -> int:
        """The version up to which a client of an earlier process holds the view's state; 0 if unknown."""
        former = self._checkpoint(since)
        return former.version if former is not None and self.projection.shows_as(former) else 0

    def _checkpoint(self, since: int) -> Checkpoint | None:
        """The checkpoint of an earlier process, if it covers a client at this version."""
        former = self.projection.former
        if former is None or since <= max(former.last_incompatible, self.projection.store.former_version):
            return None
        return former if self._may_prove() else None

    def _unseen(self, since: int) -> Callable[[Key], bool]:
        """Return a predicate: True for an object that no client at this version can hold, because filters hid it both
        before and after a restart."""
        former, history = self._checkpoint(since), self.projection.store.history
        is_incompatible = since <= max(self._last_incompatible, self.projection.last_incompatible)
        if (
            former is None
            or is_incompatible
            or not history.names_all_changed_after(min(since, former.version))
        ):
            return lambda _key: False
        changed = history.changed_after(min(since, former.version))
        return lambda key: key not in changed and former.has_hidden(key)

    def watch(
        self, since: int | None, confirmed: int = 0, *, bookmarks: bool, coding: StreamCoding = PLAIN
    ) -> Watcher:
        """Make a watcher of the events after version `since`, or from now on if None. `confirmed` as in `listing`.

        StatusError 410 if the client's state is unknown.
        """
        self._confirm(confirmed)
        if since is None:
            self._begin_history()
            return self._open(self.log.end, 0, bookmarks, coding)
        resumption = self.judge(since)
        if resumption is Resumption.EXPIRED:
            raise expired(f"too old resource version: {since} ({self.version})")
        self._begin_history()
        # It is unknown whether a client that is ahead has the local events.
        start = self._foreign_from(since) if self.is_ahead(since) else None
        begin = since if start is None else start
        if resumption is Resumption.FOLLOW:
            position = max(self.log.position_after(begin), self._begin)
            watcher = self._open(position, since, bookmarks, coding)
        else:
            seen = 0 if start is None else since
            watcher = self._open(self.log.end, seen, bookmarks, coding, self._missed(begin, resumption))
        if start is not None:
            self._resend_all(watcher)
        if (gap := self.projection.store.history.gap_after(since)) is not None:
            watcher.note_gap(gap)
        return watcher

    def _missed(self, since: int, resumption: Resumption) -> InitialEvents:
        if resumption is Resumption.CORRECT:
            return correction(self.projection, self.scope, since, unseen=self._unseen(since))
        if resumption is Resumption.REPEAT:
            start = min(since, self._checkpoint_version(since) or since)
            return correction(self.projection, self.scope, since, start)
        missed = (self.event(change) for change in self.projection.replay(since))
        return InitialEvents((), [event.frame for event in missed if event is not None])

    def send_bookmark(self) -> None:
        """Send a bookmark with the current version to watchers that requested bookmarks."""
        for watcher in self.watchers:
            if watcher.bookmarks:
                watcher.send_bookmark()

    def switch(self, projection: Projection) -> None:
        """Use another chain from now on, and send watchers the difference."""
        if projection is self.projection:
            return
        self.expire_ahead()
        old, self.projection = self.projection, projection
        self._last_incompatible = projection.store.newest_given
        old.forget(self)
        self._new.clear()
        for watcher in self.watchers:
            watcher.leave(old.log, projection.log.end)
        self._begin_at_end()
        # The previous log has the local changes up to here, also for clients at this version.
        self.oldest = max(self.oldest, self._last_incompatible + 1)
        projection.listen(self, self.scope)
        before = {item.key: item for item in filter(self._matches, old)}
        after = {item.key: item for item in self}
        for key in sorted(before.keys() | after.keys()):
            was, now = before.get(key), after.get(key)
            if (item := now or was) is not None and differ(was, now):
                change = ProjectedChange(item.version, key, was, now, was, is_local=True)
                change.reader = self
                self.changed(change)

    def changed(self, change: ProjectedChange) -> None:
        if not self._has_history or (type_ := self.event_type(change)) is None:
            return
        if change.is_local:
            history = self.projection.store.history
            history.newest_carried = max(history.newest_carried, change.version)
            newest = max(self.projection.store.newest_given, self.given_by_others())
            if self.projection.filtered:
                self.expire_ahead()
            for watcher in self.watchers:
                if self.is_ahead(watcher.seen_version):
                    self._resend_all(watcher)
                    newest = max(newest, watcher.seen_version)
            if newest > self.version:
                first, last = self._between
                self._between = min(first or self.version, self.version), max(last, newest)
        before, at = self.newest, self.projection.store.newest_given if change.is_local else change.version
        self.log.append(change, at)
        self.newest = self.log.end
        if self.watchers or self.noted is not None:
            event = self.made(change, type_)
            if not self._new:
                self._new_at = before, self.log.end - 1
                asyncio.get_running_loop().call_soon(self._deliver)
            self._new.append(event)
            if self.noted is not None:
                self.noted(type_, change.key, change.version, len(event.frame))

    def dropped(self, position: int, change: ProjectedChange) -> None:
        is_other = change.reader not in (None, self) or position < self._begin
        if self._has_history and not is_other and self.event_type(change) is not None:
            version, sequence = change.at
            # A client at this version may not have seen the local events at it.
            self.oldest = max(self.oldest, version + bool(sequence))
            self.forgotten = position + 1

    def hidden_changed(self, item: Item) -> None:
        if self.noted is not None and self.scope.matches(item):
            self.noted(HIDDEN, item.key, item.version, 0)

    def gap_recorded(self) -> None:
        """End the watches of clients within a new gap of the history, and send the others a bookmark that reports
        it."""
        history = self.projection.store.history
        self._end_seen(lambda seen: history.is_in_gap(seen) and seen not in self._confirmed)
        for watcher in list(self.watchers):
            watcher.note_gap(history.newest_gap)

    def _resend_all(self, watcher: Watcher) -> None:
        """Send a client that is ahead all events from its watcher's position on: the local ones, and all of the
        cloud's, which correct the older objects in them."""
        watcher.skips_seen = False
        history = self.projection.store.history
        history.newest_carried = max(history.newest_carried, watcher.seen_version)

    def expire_ahead(self) -> None:
        """End the watches of clients that are ahead of the store with 410: they may hold objects that the view does not
        know."""
        self._end_seen(self.is_ahead)

    def expire_former(self, version: int) -> None:
        """End watches with 410: of clients that are ahead, or that came with a version of a previous history, up to
        `version`."""
        self._end_seen(lambda seen: 0 < seen <= version or self.is_ahead(seen))

    def _end_seen(self, is_lost: Callable[[int], bool]) -> None:
        for watcher in list(self.watchers):
            if is_lost(watcher.seen_version):
                watcher.end(expired(f"too old resource version: {watcher.seen_version} ({self.version})"))

    def restarted(self) -> None:
        self._confirmed, self._between = [0], (0, 0)
        self._new.clear()
        self._begin_at_end()
        self._has_history = not self.projection.filtered
        for watcher in self.watchers:
            watcher.skip()
        self.end_watches(expired(HISTORY_RESTARTED))

    def end_watches(self, error: StatusError | None) -> None:
        """End every watch: with an ERROR event, or cleanly so that clients resume."""
        for watcher in list(self.watchers):
            watcher.end(error)

    def _confirm(self, version: int) -> None:
        store = self.projection.store
        if version > store.version and version not in self._confirmed:
            self._confirmed = sorted((*self._confirmed, version))[-MAX_CONFIRMED:]
        store.given_version = max(store.given_version, version)

    def _begin_history(self) -> None:
        if not self._has_history:
            self._begin_at_end()
            self._has_history = True

    def _begin_at_end(self) -> None:
        """Make the log known to clients only from here on: earlier parts may lack local changes."""
        self._begin = self.newest = self.forgotten = self.log.end
        self.oldest = max(self.version, self.projection.store.history.newest)

    def _open(
        self,
        position: int,
        seen: int,
        bookmarks: bool,
        coding: StreamCoding,
        initial: InitialEvents | None = None,
    ) -> Watcher:
        watcher = Watcher(self, position, seen, initial, bookmarks=bookmarks, coding=coding)
        self.watchers[watcher] = None
        return watcher

    def _deliver(self) -> None:
        """Send the new events to all watchers."""
        if not self._new:
            return  # the view has left the log
        new, self._new = NewEvents(self._new, *self._new_at, self.log.end), []
        for watcher in list(self.watchers):
            watcher.deliver(new)
