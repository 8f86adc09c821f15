"""All sources of the node: one per identity and list-watch.

A source starts with its first client and stops some minutes after its last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from functools import partial

from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.rules.edits import RulesEdits
from addons.rules.table import Rules
from addons.telemetry import metrics
from addons.views.persistence import SourceCopies
from addons.views.quotas import (
    MAX_COPIES,
    MAX_COPY_BYTES,
    BeyondQuota,
    check_new_source,
    check_new_view,
    size_of,
    too_large,
)
from addons.views.source import ChainOf, Source, ViewKey
from kube.bounds import reached
from kube.http.client import Client
from kube.requests.request_info import ResourceType
from kube.store.projection import InputKey
from kube.store.reflector import ListWatch, State
from kube.store.upstream import Upstream

BOOKMARK_INTERVAL = 60.0
"""Seconds between bookmarks on a quiet watch, as kube-apiserver's."""
SWEEP_INTERVAL = 10.0
"""Seconds between looks for sources and views that no client uses."""


class Sources:
    """All sources, by who asks the cloud and what."""

    def __init__(
        self,
        client_of: Callable[[CloudIdentity], Client],
        chain_of: ChainOf,
        rules: Callable[[], Rules],
        idle: float,
        copies: SourceCopies | None = None,
        is_up: Callable[[], bool] = lambda: True,
        edits: RulesEdits | None = None,
    ) -> None:
        """`rules` gives the rules in force; `is_up` says whether there is a cloud to wait for.

        `edits` knows the last edit of the rules that an earlier process noted.
        """
        self.upstream_of: Callable[[Source], Upstream | None] = lambda _source: None
        """Who reads a new source's lists and watches; None: the source's own client, from the cloud."""
        self._is_up = is_up
        self._cloud_at: int | None = None
        self._sentinel: Source | None = None
        self._copies = copies
        self._client_of = client_of
        self._chain_of = chain_of
        self._rules = rules
        self._edits = edits or RulesEdits()
        self._given_filtered = 0
        """The newest version that a client was given by a filtered view of a source which is gone."""
        self._idle = idle
        self._sources: dict[tuple[str, ListWatch], Source] = {}
        self._tasks = [
            asyncio.create_task(self._every(SWEEP_INTERVAL, self._sweep), name="sweep of sources"),
            asyncio.create_task(self._every(BOOKMARK_INTERVAL, self._remind), name="bookmarks"),
        ]

    def __iter__(self) -> Iterator[Source]:
        return iter(list(self._sources.values()))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for source in self:
            source.close()
        self._sources.clear()

    def get(self, identity: CloudIdentity, list_watch: ListWatch, *, keep: bool = True) -> Source:
        """The source of a list-watch as an identity may see it, started where it does not run; `keep` it on disk."""
        copies = self._copies if keep else None
        source = self._sources.get((identity.user, list_watch))
        if not identity.is_hub and (source is None or source.copy is None):
            # What a token asks for is kept once its first list is known: see `measure`.
            copies = copies if copies and list_watch in copies.list_watches(identity.user) else None
        if source is None:
            source = self._make(identity, list_watch)
            self._sources[identity.user, list_watch] = source.start(copies, self._trusts)
            metrics.SOURCES.set(len(self._sources))
            return source
        if copies is not None:
            source.keep(copies)
        if not identity.is_hub:
            # Tokens rotate: the user's newest one is the one that lives.
            source.reflector.client = source.client = self._client_of(identity)
        return source

    def admit(self, identity: CloudIdentity, list_watch: ListWatch, *, keep: bool = True) -> Source:
        """As `get`, for a client's request: BeyondQuota where the identity may have no further source."""
        if (identity.user, list_watch) not in self._sources:
            check_new_source(self, identity.user)
        return self.get(identity, list_watch, keep=keep)

    def measure(self, source: Source, *, keep: bool) -> None:
        """Hold a token's source to the quotas once it has its first list, and `keep` it on disk where it is small.

        BeyondQuota where all sources of tokens are too large with this one, which is closed then.
        """
        if source.user and source.is_closed:
            raise BeyondQuota("bytes")
        if not source.user or source.is_measured:
            return
        source.is_measured = True
        if source in too_large(self):
            self._drop(source)
            raise BeyondQuota("bytes")
        copies = self._copies if keep else None
        if copies is None:
            return
        kept = {each.list_watch for each in self if each.user == source.user and each.copy is not None}
        kept.update(copies.list_watches(source.user))
        if size_of(source) > MAX_COPY_BYTES or len(kept) >= MAX_COPIES:
            reached("copies of a token's sources")
        else:
            source.keep(copies)

    def check_view(self, source: Source, key: ViewKey, user: str) -> None:
        """BeyondQuota where a user would open a view and may have no further one."""
        check_new_view(self, source, key, user)

    def sentinel(self, list_watch: ListWatch) -> Source:
        """A source of the hub's own that never stops, and that notices a restored cloud for all sources."""
        source = self._sentinel = self._make(HUB_IDENTITY, list_watch, self._compare)
        source.users += 1
        self._sources["", list_watch] = source.start(self._copies, self._trusts)
        return source

    def list_watches(self, identity: CloudIdentity, type_: ResourceType) -> list[ListWatch]:
        """What is kept of a resource for an identity, running or on disk."""
        running = [list_watch for user, list_watch in self._sources if user == identity.user]
        kept = self._copies.list_watches(identity.user) if self._copies is not None else []
        return [each for each in dict.fromkeys([*running, *kept]) if each.type == type_]

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        for source in self:
            source.inputs_changed(inputs)

    def rules_changed(self, version: int) -> None:
        """Give each view the filters that the rules now bind to its component. `version` is that of the edit."""
        given = max((self._given_filtered, *(each.given_filtered for each in self)))
        was_edited = self._edits.note(self._rules().digest, version, given)
        for source in self:
            source.rules_changed(was_edited=was_edited)

    def can_resume(self, version: int) -> bool:
        """Whether every client that holds this version was given it under the rules in force."""
        return self._edits.can_resume(version)

    def cloud_recovered(self) -> None:
        """End the delays of reflectors: the cloud is back."""
        for source in self:
            source.reflector.recovered()

    def _make(
        self,
        identity: CloudIdentity,
        list_watch: ListWatch,
        compare_version: Callable[[int], None] | None = None,
    ) -> Source:
        client = self._client_of(identity)
        made = Source(
            list_watch,
            identity,
            client,
            self._chain_of,
            self._rules,
            self._is_up,
            compare_version,
            lambda version: not self._could_filter(list_watch.type) or self.can_resume(version),
            max(self._edits.version, self._given_filtered),
            was_edited=self._edits.was_edited,
        )
        made.reflector.restored = self._relist
        if made.user:
            made.reflector.grew = partial(self._close_if_too_large, made)
        made.reflector.upstream = self.upstream_of(made)
        return made

    def _could_filter(self, type_: ResourceType) -> bool:
        return self._rules().could_filter(type_.group, type_.resource, "watch")

    async def _every(self, seconds: float, do: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            do()

    def _trusts(self, version: int) -> bool:
        """Whether the cloud can have been at the version of a copy from disk."""
        watched = [each.store.version for each in self if each.reflector.state is State.WATCHING]
        return self._cloud_at is None or version <= max(self._cloud_at, *watched, 0)

    def _compare(self, version: int) -> None:
        """After an outage: a source that is ahead of this version asks the cloud for the version of its own resource.

        It may be ahead because the cloud was restored from a backup, or because an aggregated API has an etcd, and so
        versions, of its own.
        """
        self._cloud_at = version
        if self._sentinel is not None and self._sentinel.store.newest_given > version:
            self._edits.restored(version)
        for source in self:
            if source.store.newest_given > version:
                source.reflector.verify()

    def _relist(self) -> None:
        """The cloud was restored from a backup: no version that was resumed from means anything any more."""
        for source in self:
            source.reflector.relist()

    def _sweep(self) -> None:
        for source in self:
            is_refused = source.reflector.refusal is not None and bool(source.user) and not source.users
            if source.sweep(self._idle) or is_refused:
                self._drop(source)
        for source in too_large(self):
            self._drop(source)

    def _close_if_too_large(self, source: Source) -> None:
        """Close a token's source whose list, while it comes, is too large with all sources of tokens."""
        if not source.is_closed and source in too_large(self):
            self._drop(source)

    def _drop(self, source: Source) -> None:
        del self._sources[source.user, source.list_watch]
        self._given_filtered = max(self._given_filtered, source.given_filtered)
        source.close()
        metrics.SOURCES.set(len(self._sources))

    def _remind(self) -> None:
        for source in self:
            source.remind()
