"""One open watch of a view: the first events for its client, and then a position in the view's ring.

Most of the time every watcher of a view has read all of its ring. The next events are the same for all: `NewEvents`
encodes them once for each coding, and writes them to each client without waking its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kube.errors import StatusError
from kube.store.listing import Form
from kube.store.projection import Projection
from kube.store.ring import Cursor, Ring, RingEvent
from kube.store.scope import Scope
from kube.store.store import Item, Key, Store
from kube.store.stream_coding import StreamCoding
from kube.wire.api_objects import decode_object
from kube.wire.codec import Codec
from kube.wire.codec_base import HISTORY_GAP, INITIAL_EVENTS_ENDED, NO_ANNOTATIONS, PIECE
from kube.wire.fields import Fields

READ_AT_ONCE = 256 * 1024
"""Bytes of events that one client has taken out of the history and not been sent, but for the last of them."""
SERVICE_NAME = "kubernetes.io/service-name"
"""The label of a slice that names its Service."""

type Outlet = Callable[[bytes], bool]
"""Sends bytes to a client at once. Sends nothing and returns False where the client has no room, or has left."""


class Beginning(NamedTuple):
    """The first events for a client: events that it missed, objects that it must not keep, and then a state."""

    state: Sequence[Item]
    missed: Sequence[bytes] = ()
    hidden: Sequence[Item] = ()
    """Objects that the client may hold and that the view does not show. It gets them as DELETED."""
    is_list: bool = False
    """The state is a whole list, as of a WatchList. The bookmark that ends the state says so."""

    def frames(self, write: Callable[[str, Item], bytes]) -> Iterator[bytes]:
        """The events in their order; `write` makes one of a type and an object."""
        yield from self.missed
        for item in self.hidden:
            yield write("DELETED", item)
        for item in self.state:
            yield write("ADDED", item)


def correction(
    projection: Projection,
    scope: Scope,
    since: int,
    changed_after: int | None = None,
    unseen: Callable[[Key], bool] = lambda _key: False,
) -> Beginning:
    """Events that turn any state of a client at version `since` into what a projection shows through a scope.

    With `changed_after` the client's state may differ only in objects that have changed after that version.
    The scope's selectors hide an object too: the client may hold it from before its labels changed. The client cannot
    hold objects of other namespaces or names than the scope's, later ones, or the `unseen`. DELETED of the rest has
    name and version, and what kube-proxy needs (ROUTES).
    """
    state, hidden = [], []
    store, start = projection.store, since
    objects: Iterable[Item] = store
    if changed_after is not None:
        changed, start = store.history.changed_after(changed_after), min(since, changed_after)
        objects = filter(lambda item: item.key in changed, store)
    for item in objects:
        now = projection.get(item.key)
        if now is not None and scope.matches(now):
            state.append(now)
        elif scope.may_have_held(item):
            hidden.append(item)
    shown = {item.key for item in state}
    gone = store.gone_after(start)
    hidden += [item for key, item in gone.items() if key not in shown and scope.may_have_held(item)]
    made = _made_after(store, since)
    hidden = [_name_alone(item) for item in hidden if item.key not in made and not unseen(item.key)]
    return Beginning(state, hidden=hidden)


def _made_after(store: Store, version: int) -> set[Key]:
    """The objects that the history knows not to have existed at a version."""
    first: dict[Key, bool] = {}
    if version > store.former_version:
        for change in store.history.after(version):
            first.setdefault(change.key, change.old is None and not change.is_deletion)
    return {key for key, was_made in first.items() if was_made}


def _name_alone(item: Item) -> Item:
    """Leave the name and the version of an object, and what ROUTES lists of its kind."""
    store = item.store
    named = store.codec.name_alone(store.api_version, store.kind, item.key, item.version)
    if (route := ROUTES.get(store.kind)) is not None:
        with suppress(ValueError):  # a malformed object has its name alone
            obj = decode_object(store.codec.encoding, store.api_version, store.kind, named)
            route(item.decode().fields, obj.fields)
            named = obj.encode()
    return Item(store, item.key, item.version, {}, named)


def _route_of_service(source: Fields, named: Fields) -> None:
    spec, route = source.child("spec"), named.child("spec")
    for name in ("clusterIP", "type"):
        _copy(spec, route, name)
    for name in ("clusterIPs", "ipFamilies"):
        route.set_texts(name, spec.texts(name))
    for port in spec.children("ports"):
        added = route.add("ports")
        for name in ("name", "protocol"):
            _copy(port, added, name)


def _route_of_slice(source: Fields, named: Fields) -> None:
    _copy(source, named, "addressType")
    service = source.child("metadata").mapping("labels").get(SERVICE_NAME)
    if service is not None:
        named.child("metadata").set_mapping("labels", {SERVICE_NAME: service})


def _copy(source: Fields, named: Fields, name: str) -> None:
    if text := source.text(name):
        named.set(name, text)


ROUTES: Mapping[str, Callable[[Fields, Fields], None]] = {
    "Service": _route_of_service,
    "EndpointSlice": _route_of_slice,
}
"""The fields of a deleted object by which kube-proxy finds the rules to undo. It leaves its rules in place for a
Service without ports or cluster IP, or a slice without address type or the label of its Service."""


class Feed:
    """The input of a view's watchers: a projection in one form, and the events in a ring."""

    def __init__(self, projection: Projection, form: Form, ring: Ring) -> None:
        self.form = form
        self.ring = ring
        self.watchers: dict[Watcher, None] = {}
        """In the order in which they came."""
        self.projection = projection
        self._confirmed = [0]
        """In their order the newest versions that the cloud confirmed for lists of this view (rule 7)."""
        self._last_bookmark = (0, b"")

    @property
    def version(self) -> int:
        return max(self.projection.store.version, self._confirmed[-1])

    @property
    def codec(self) -> Codec:
        return self.form.codec(self.projection.store.codec)

    def is_ahead(self, seen: int) -> bool:
        """Whether a client at this version is ahead of the store, and the cloud has not confirmed the view's state
        for it."""
        return seen > self.projection.store.version and not self.has_confirmed(seen)

    def reached(self, seen: int) -> int:
        """The version of a client that came with `seen` and was sent everything since."""
        return seen if self.is_ahead(seen) else self.version

    def has_confirmed(self, version: int) -> bool:
        """Whether the cloud had this view's state at a version: a list or watch of it said so."""
        return version in self._confirmed

    def cursor(self) -> Cursor:
        """The cursor of a watcher that has read the whole ring."""
        return Cursor(self.ring.end, self.version)

    def _type(self) -> tuple[str, str]:
        return self.projection.store.api_version, self.projection.store.kind

    def frame(self, event_type: str, item: Item) -> bytes:
        codec, type_ = self.codec, self.form.type_of(*self._type())
        return codec.encode_event(event_type, *type_, self.form.event(codec, item))

    def headed(self, first: bytes) -> bytes:
        """The first events of a watch, as `Form.headed`."""
        return self.form.headed(first, *self._type())

    def bookmark(self, version: int, annotations: Mapping[str, str] = NO_ANNOTATIONS) -> bytes:
        """A bookmark. All watchers of the view send the same bytes, so a bookmark to hundreds is serialised once."""
        if annotations:
            return self.form.bookmark(self.codec, *self._type(), version, annotations)
        if self._last_bookmark[0] != version:
            written = self.form.bookmark(self.codec, *self._type(), version, NO_ANNOTATIONS)
            self._last_bookmark = (version, written)
        return self._last_bookmark[1]


class NewEvents:
    """The events of a ring from a position to its end, for all watchers that have read up to that position."""

    def __init__(self, ring: Ring, position: int) -> None:
        self.position = max(position, ring.start)
        self.end = ring.end
        self._events = ring.read(self.position, self.end)
        self._written: dict[str, bytes] = {}
        self.oldest = self._events[0].version if self._events else 0
        is_small = 0 < sum(len(event.retained) for event in self._events) <= PIECE
        self.is_shared = is_small and not any(event.sequence for event in self._events)
        """Whether clients get the same. Behind an event that the node caused, each gets a bookmark of its own."""

    def written(self, coding: StreamCoding) -> bytes:
        """The events in a coding."""
        frames = self._written.get(coding.name)
        if frames is None:
            frames = self._written[coding.name] = b"".join(map(coding.event, self._events))
        return frames


class Watcher:
    """One open watch: a position in its view's ring."""

    __slots__ = (
        "_beginning",
        "_bookmark_due",
        "_end",
        "_error",
        "_gap",
        "_position",
        "_start",
        "_waiter",
        "bookmarks",
        "coding",
        "ended",
        "fell_behind",
        "outlet",
        "seen_version",
        "skips",
        "view",
    )

    def __init__(
        self,
        view: Feed,
        position: int,
        seen_version: int,
        beginning: Beginning | None,
        *,
        bookmarks: bool,
        coding: StreamCoding,
    ) -> None:
        """`beginning` is what the client gets first; None where it resumes after the version that it has."""
        self.view = view
        self.coding = coding
        self.bookmarks = bookmarks
        self.outlet: Outlet | None = None
        """Takes events while nobody does anything with what `frames` gave; None where the client has none."""
        self.ended = False
        self.fell_behind = False
        """Whether the view cut the watch because its client read too slowly. The client resumes by its version."""
        self._start = view.cursor()
        self._beginning = beginning
        self._position = position
        self.seen_version = seen_version
        """The version that the client came with, up to which it has seen the cloud's events (rule 5); 0 for none."""
        self.skips = True
        """Whether the client gets none of the cloud's events up to `seen_version`."""
        self._bookmark_due = False
        self._gap = NO_ANNOTATIONS
        """The annotations of the next bookmark, about a gap in the history."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: StatusError | None = None
        self._end: Cursor | None = None
        """Where the watch was ended. The client gets nothing behind it."""

    @property
    def unread(self) -> int:
        """Events of the view that `frames` has not given yet."""
        return max(0, self.view.ring.end - self._position)

    def initial_events(self) -> Iterator[bytes]:
        """The events and the state that come first, and the bookmark that ends them, written by `coding.state`."""
        beginning, self._beginning = self._beginning, None
        if beginning is None:
            return
        yield from beginning.frames(self.view.frame)
        if self.bookmarks:
            ends = INITIAL_EVENTS_ENDED if beginning.is_list else NO_ANNOTATIONS
            yield self.view.bookmark(self._start.version, ends)

    async def frames(self) -> list[bytes]:
        """The next events, coded; empty when the watch has ended. StatusError when it ended with one."""
        while True:
            frames = self._read()
            if frames:
                return frames
            if self.ended:
                if self._error is not None:
                    raise self._error
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def deliver(self, new: NewEvents) -> None:
        """Send events to a client that has all before them, and room. Else wake its task, which writes them."""
        if self._can_take(new) and self._send(new.written(self.coding)):
            self._position = new.end
        else:
            self.wake()

    def _can_take(self, new: NewEvents) -> bool:
        """Whether `frames` waits, and these events are the next ones for this client too."""
        waits = self._waiter is not None and not self._waiter.done()
        return (
            waits
            and new.is_shared
            and self._position == new.position
            and self.seen_version < new.oldest
            and not self._bookmark_due
            and not self.ended
        )

    def _send(self, data: bytes) -> bool:
        if self.outlet is None:
            return False
        try:
            return self.outlet(data)
        except Exception:
            # The client's task meets the same error, and ends the watch by it. No other client waits for that.
            self.outlet = None
            return False

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send_bookmark(self) -> None:
        """Append a bookmark once `frames` has given all events up to the bookmark's version."""
        self._bookmark_due = True
        self.wake()

    def note_gap(self, since: int) -> None:
        """Like `send_bookmark`, for other hubs too: a list left a gap after this version.

        Of several gaps the first counts, as if one gap began there.
        """
        self._gap = self._gap or {HISTORY_GAP: str(since)}
        if self.bookmarks:
            self.send_bookmark()

    def end(self, error: StatusError | None = None) -> None:
        """End `frames` after the remaining events, and a last bookmark unless there is an error."""
        if self._end is None:
            self._end = self.view.cursor()._replace(version=self.view.reached(self.seen_version))
            self._error = error
            self._bookmark_due = error is None
        self.ended = True
        self.view.watchers.pop(self, None)
        self.wake()

    def _read(self) -> list[bytes]:
        """Some of the events up to the end of the ring, or of the watch, and behind the last a bookmark that is due."""
        if self.fell_behind:
            return []
        frames: list[bytes] = []
        end = self.view.ring.end if self._end is None else self._end.position
        while self._position < end and not frames:
            try:
                events = self._some(end)
            except LookupError:
                self.fell_behind = True
                self.end()
                return []
            self._position += len(events)
            seen = self.seen_version if self.skips else 0
            if any(event.sequence for event in events):
                # The last event may carry an old version, from which the client could not resume.
                self._bookmark_due = self._error is None
            write = self.coding.event
            frames = [write(event) for event in events if event.version > seen or event.sequence]
        if self._bookmark_due and self._position >= end:
            self._bookmark_due = False
            if self.bookmarks:
                version = self.view.reached(self.seen_version) if self._end is None else self._end.version
                frames.append(self.coding.frame(self.view.bookmark(version, self._gap)))
                self._gap = NO_ANNOTATIONS
        return frames

    def _some(self, end: int) -> list[RingEvent]:
        """The next events, of READ_AT_ONCE bytes but for the last: packed ones are unpacked for this client alone."""
        some: list[RingEvent] = []
        size = 0
        for event in self.view.ring.read(self._position, end):
            some.append(event)
            size += len(event.retained)
            if size > READ_AT_ONCE:
                break
        return some
