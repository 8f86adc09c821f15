"""Starts, finds and stops the node's sources: one for each identity and list-watch.

A source starts with its first client and stops some minutes after its last one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from addons.requests.clients import TokenClients
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.rules.filtering import Filtering
from addons.telemetry import metrics
from addons.telemetry.background import background
from addons.views.bounds.idling import Idling
from addons.views.bounds.quotas import (
    MAX_COPIES,
    MAX_COPY_BYTES,
    MAX_HISTORIES,
    MAX_HUB_HISTORIES,
    BeyondQuota,
    check_new_source,
    check_new_view,
    least_used,
    outgrown,
    size_of,
    too_large,
)
from addons.views.open_view import ViewKey
from addons.views.persistence import SourceCopies, Withdrawals
from addons.views.source import HeldVersions, NotedOf, Source
from kube.bounds import reached
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.store.change_log import Logs
from kube.store.projection import InputKey
from kube.wire.encoding import Encoding

BOOKMARK_INTERVAL = 60.0
"""Seconds between bookmarks on a quiet watch, as at kube-apiserver."""
TOTAL_CHECK_BYTES = 256 * 1024
"""Bytes of events after which the total size of all sources is computed again."""
RESTORE_TIME = 30.0
"""Seconds in which all sources detect the same restore of the cloud, each by itself."""
SWEEP_INTERVAL = 10.0
"""Seconds between checks for sources and views that no client uses."""


type RunningSources = dict[tuple[str, ListWatch], Source]
"""The sources that run, by user and list-watch."""


class CloudReads(NamedTuple):
    """How sources read from the cloud."""

    client_of: Callable[[CloudIdentity], Client]
    is_up: Callable[[], bool] = lambda: True
    """Returns whether the cloud is reachable."""
    up_since: Callable[[], float] = lambda: 0.0
    """Returns the value of `addons.link.health.Cloud.up_since`."""


class Sources:
    """All sources, by identity and list-watch."""

    def __init__(
        self,
        cloud: CloudReads,
        filtering: Filtering,
        idle: float,
        copies: SourceCopies | None = None,
        noted: NotedOf = lambda *_: None,
        running: RunningSources | None = None,
    ) -> None:
        """`noted` is called for each new view. `running`, an empty mapping, gets the sources, for earlier readers."""
        self.on_new: list[Callable[[Source], None]] = []
        """Called with each new source before it reads from the cloud, for example to read elsewhere."""
        self.on_restore: list[Callable[[str], None]] = []
        """Called with each resource of which clients may hold a version from before the cloud was restored."""
        self.noted = noted
        self._is_up, self._up_since = cloud.is_up, cloud.up_since
        self._copies = copies
        self._client_of = cloud.client_of
        self.filtering = filtering
        self._rules, self._given = filtering.rules, filtering.given
        self._last_incompatible: dict[ResourceType, int] = {}
        """The newest version that a client got from a filtered view of a source that is closed."""
        self._closed_versions: dict[str, int] = {}
        """The newest version of each resource that a closed source had, since the last restore of the cloud."""
        self._restored = -RESTORE_TIME
        """When a restore of the cloud was last detected, in monotonic seconds."""
        self._idle = idle
        self._sources = running if running is not None else {}
        self._clients: dict[str, TokenClients] = {}
        """The clients of the users with sources."""
        self.idling = Idling(self._drop, self._grew, time.monotonic)
        self._unsummed = 0
        """Bytes of events since the total size of all sources was last computed."""
        self._withdrawals = Withdrawals()
        self._logs, self._hub_logs = Logs(MAX_HISTORIES), Logs(MAX_HUB_HISTORIES)
        self._tasks = [
            background(self._every(SWEEP_INTERVAL, self._sweep), "sweep of sources"),
            background(self._every(BOOKMARK_INTERVAL, self._remind), "bookmarks"),
        ]

    def __iter__(self) -> Iterator[Source]:
        return iter(list(self._sources.values()))

    def close(self) -> None:
        for task in (*self._tasks, *self._withdrawals.tasks):
            task.cancel()
        for source in self:
            source.close()
        self._given.close()
        self._sources.clear()

    def get_own(self, list_watch: ListWatch) -> Source:
        """Return the source of a list-watch as `get` does, for the hub itself, which keeps it open."""
        source = self.get(HUB_IDENTITY, list_watch)
        source.is_own = True
        return source

    def get(
        self, identity: CloudIdentity, list_watch: ListWatch, *, keep: bool = True, begin_at: int = 0
    ) -> Source:
        """Return the source of a list-watch as an identity may read it. Start it if it does not run; `keep` it on disk.

        `begin_at` is the client's version: a new source should have the events since then.
        """
        copies = self._copies if keep else None
        source = self._sources.get((identity.user, list_watch))
        if not identity.is_hub and (source is None or source.copy is None):
            # A token's source is kept once its first list is known: see `measure`.
            copies = copies if copies and list_watch in copies.list_watches(identity.user) else None
        if source is None:
            source = self._make(identity, list_watch, begin_at)
            self._sources[identity.user, list_watch] = source.start(copies)
            metrics.SOURCES.set(len(self._sources))
            return source
        if copies is not None:
            source.persist(copies)
        self._client(identity)
        return source

    def admit(
        self, identity: CloudIdentity, list_watch: ListWatch, *, keep: bool = True, begin_at: int = 0
    ) -> Source:
        """Return a source as `get` does, for a client's request. BeyondQuota if the identity may have no further
        source."""
        if (identity.user, list_watch) not in self._sources:
            check_new_source(self, identity.user)
        return self.get(identity, list_watch, keep=keep, begin_at=begin_at)

    def measure(self, source: Source, *, keep: bool) -> None:
        """Apply the quotas to a source once it has its first list, and `keep` a token's source on disk if it is small.

        BeyondQuota if this source makes all sources of tokens, or of the node, too large; then it is closed.
        """
        if not source.is_measured:
            source.reflector.grew()
        if source.is_closed:
            raise BeyondQuota("bytes")
        if source.is_measured:
            return
        source.is_measured, source.first_size = True, source.store.size
        copies = self._copies if keep and source.user else None
        if copies is None:
            return
        list_watches = {
            other.list_watch for other in self if other.user == source.user and other.copy is not None
        }
        list_watches.update(copies.list_watches(source.user))
        if size_of(source) > MAX_COPY_BYTES or len(list_watches) >= MAX_COPIES:
            reached("copies of a token's sources")
        else:
            source.persist(copies)

    def check_view(self, source: Source, key: ViewKey, user: str) -> None:
        """Raise BeyondQuota if a user may open no further view."""
        check_new_view(self, source, key, user)

    def permanent(self, list_watch: ListWatch) -> Source:
        """Return a source of the hub's own that never stops."""
        source = self.get_own(list_watch)
        source.users += 1
        return source

    def list_watches(self, identity: CloudIdentity, type_: ResourceType) -> list[ListWatch]:
        """Return the list-watches of a resource for an identity, running or on disk, the newest first."""
        on_disk = dict(self._copies.list_watches(identity.user)) if self._copies is not None else {}
        running = {source.list_watch: source.store.version for source in self if source.user == identity.user}
        # A source that is being read from disk has no version yet.
        versions = {
            list_watch: max(running.get(list_watch, 0), on_disk.get(list_watch, 0))
            for list_watch in (running | on_disk)
        }
        return sorted(
            (version for version in versions if version.type == type_), key=versions.__getitem__, reverse=True
        )

    def readable_copy(
        self, identity: CloudIdentity, list_watch: ListWatch, encodings: Collection[Encoding]
    ) -> ListWatch:
        """Return the list-watch; offline the one in another of these encodings, if only that has a copy."""
        if self._is_up():
            return list_watch
        others = [list_watch._replace(encoding=encoding) for encoding in Encoding if encoding in encodings]
        copied = self._copies.list_watches(identity.user) if self._copies is not None else {}
        running = {
            source.list_watch for source in self if source.user == identity.user and source.store.complete
        }
        return next((each for each in (list_watch, *others) if each in running or each in copied), list_watch)

    def has_all(self, source: Source) -> bool:
        """Whether a source followed the cloud until it went away: what it lacks did not exist then."""
        if (up_since := self._up_since()) and source.reflector.state is not State.WATCHING:
            return source.reflector.heard >= up_since
        return source.copy is None or source.copy.is_followed

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        """Filter the objects again that read these inputs, as soon as the disk has no checkpoint of any view."""
        affected = [source.checkpoints for source in self if source.checkpoints.may_be_on_disk(inputs)]
        self._withdrawals.begin(affected, partial(self._inputs_changed, inputs))

    def _inputs_changed(self, inputs: Collection[InputKey]) -> None:
        for source in self:
            source.inputs_changed(inputs)

    def rules_changed(self) -> None:
        """Give each view the filters that the rules now bind to its component."""
        given = dict.fromkeys(self._rules().bindings.understood, 0)
        running = ((source.list_watch.type, source.given_filtered) for source in self)
        for type_, version in (*self._last_incompatible.items(), *running):
            if version:
                given[type_.group_resource] = max(given.get(type_.group_resource, 0), version)
        self._given.rules_edited(self._rules().digest, given)
        for source in self:
            source.rules_changed()

    def cloud_recovered(self) -> None:
        """End the back-off of all reflectors, because the cloud is reachable again."""
        for source in self:
            source.reflector.recovered()

    def _make(self, identity: CloudIdentity, list_watch: ListWatch, begin_at: int) -> Source:
        client = self._client(identity)
        if begin_at <= self._given.of_former(list_watch.type.group_resource):
            begin_at = 0  # a client of the previous history has another state at this version than the cloud
        others = (source.last_incompatible for source in self if source.list_watch.type == list_watch.type)
        made = Source(
            list_watch,
            identity,
            client,
            self.filtering,
            self._is_up,
            HeldVersions(max((self._last_incompatible.get(list_watch.type, 0), *others)), begin_at),
        )
        made.reflector.restored = partial(self._found_restored, made)
        made.noted, made.given_by_others = self.noted, partial(self._newest_given, list_watch.type)
        made.bound = self._logs if made.user else self._hub_logs
        made.reflector.grew = partial(self._close_if_too_large if made.user else self._close_least_used, made)
        made.reflector.paced = partial(self.idling.pace, made)
        for listener in self.on_new:
            listener(made)
        return made

    def _newest_given(self, type_: ResourceType) -> int:
        of_sources = (each.store.newest_given for each in self if each.list_watch.type == type_)
        return max((self._given.of_cloud(type_.group_resource), *of_sources))

    def _client(self, identity: CloudIdentity) -> Client:
        """Return a client with all tokens of the user, the newest of which is this one."""
        client = self._client_of(identity)
        if identity.is_hub:
            return client
        shared = self._clients.setdefault(identity.user, TokenClients(identity.authorization, client))
        shared.add(identity.authorization, client)
        return shared

    async def _every(self, seconds: float, do: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            do()

    def _found_restored(self, finder: Source) -> None:
        """Verify the history of all other sources and invalidate unused copies, after a restore of the cloud.

        Sources are notified of at most one restore in RESTORE_TIME; each detects a further one by itself.
        """
        self._note_former(finder.list_watch.type.group_resource, finder.store.newest_given)
        finder.reflector.verify()
        if time.monotonic() - self._restored < RESTORE_TIME:
            return
        self._restored = time.monotonic()
        given = [(source.list_watch, source.store.newest_given) for source in self]
        if self._copies is not None:
            given += self._copies.disprove_unused()
        newest, self._closed_versions = self._closed_versions, {}
        for list_watch, version in given:
            resource = list_watch.type.group_resource
            newest[resource] = max(newest.get(resource, 0), version)
        for resource, version in newest.items():
            self._note_former(resource, version)
        for source in self:
            # A client of another source may come to this one, which must know that source's newest version.
            source.store.note_given(newest[source.list_watch.type.group_resource])
            source.reflector.verify()

    def _note_former(self, resource: str, version: int) -> None:
        self._given.restored(resource, version)
        # Clients that came with such a version before the restore was detected may be relayed, wait for it in a view,
        # or use a source that began at it in the restored cloud.
        for tell in self.on_restore:
            tell(resource)
        for source in self:
            if source.list_watch.type.group_resource == resource:
                source.store.former_version = max(source.store.former_version, version)
                for opened in source.views.values():
                    opened.view.expire_former(version)

    def _sweep(self) -> None:
        for source in self:
            if source.sweep(self._idle) or _is_refused_and_unused(source):
                self._drop(source)
        for source in too_large(self):
            self._drop(source)

    def _close_if_too_large(self, source: Source) -> None:
        """Close a token's source if it brings all tokens' sources over the quota, also during its first list."""
        if not source.is_closed and source in too_large(self):
            self._drop(source)

    def _close_least_used(self, fresh: Source) -> None:
        """Close sources of the node to free memory for the first list of a new one; the new one itself last.

        Offline nothing is closed, because the hub could not fetch it again.
        """
        if fresh.is_closed or fresh.is_own or fresh.is_measured or not self._is_up():
            return
        self._evict(least_used(self, fresh))

    def _evict(self, sources: Iterable[Source]) -> None:
        for source in sources:
            if source.copy is not None:
                source.copy.discard()
            self._drop(source)
            reached("the node's sources")

    def _grew(self, size: int) -> None:
        """Apply the quotas to bytes that events add."""
        self._unsummed += size
        if self._unsummed < TOTAL_CHECK_BYTES:
            return
        self._unsummed = 0
        for source in list(too_large(self)):
            self._drop(source)
        if self._is_up():
            self._evict(list(outgrown(self)))

    def _drop(self, source: Source) -> None:
        del self._sources[source.user, source.list_watch]
        type_ = source.list_watch.type
        self._last_incompatible[type_] = max(self._last_incompatible.get(type_, 0), source.given_filtered)
        resource = type_.group_resource
        self._closed_versions[resource] = max(
            self._closed_versions.get(resource, 0), source.store.newest_given
        )
        source.checkpoints.forget()
        if source.copy is not None:
            source.copy.follow(is_followed=False)
        source.close()
        source.reflector.restored = source.reflector.grew = _nothing
        source.reflector.paced = None
        if not any(other.user == source.user for other in self):
            self._clients.pop(source.user, None)
        metrics.SOURCES.set(len(self._sources))

    def _remind(self) -> None:
        for source in self:
            source.remind()


def _is_refused_and_unused(source: Source) -> bool:
    """Whether a source can be closed, because the cloud refuses it and no client waits: the next client gets a new one.

    The node's sources of all objects of a resource stay: there are only as many as the cloud has resources.
    """
    if source.reflector.refusal is None or source.users or source.is_own:
        return False
    return bool(source.user) or not source.list_watch.is_unfiltered


def _nothing() -> None:
    """Ignore a callback of a reflector that has ended."""
