"""All sources of the node: one per identity and list-watch.

A source starts with its first client and stops some minutes after its last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from addons.filters.filter import Filter
from addons.telemetry import metrics
from addons.views.persistence import SourceCopies
from addons.views.source import ChainOf, Source, ViewKey
from kube.http.client import Client
from kube.requests.request_info import RequestInfo
from kube.store.projection import InputKey
from kube.store.reflector import ListWatch, State

BOOKMARK_INTERVAL = 60.0
"""Seconds between bookmarks on a quiet watch, as kube-apiserver's."""
SWEEP_INTERVAL = 10.0
"""Seconds between looks for sources and views that no client uses."""


class Sources:
    """All sources, by who asks the cloud and what."""

    def __init__(
        self,
        client_of: Callable[[str], Client],
        chain_of: ChainOf,
        idle: float,
        copies: SourceCopies | None = None,
        is_up: Callable[[], bool] = lambda: True,
    ) -> None:
        """`client_of` makes a client for an Authorization header ("" = the hub's own identity).

        `is_up` says whether there is a cloud to wait for.
        """
        self._is_up = is_up
        self._cloud_at: int | None = None
        self._copies = copies
        self._client_of = client_of
        self._chain_of = chain_of
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

    def get(
        self, identity: str, list_watch: ListWatch, authorization: str = "", *, keep: bool = True
    ) -> Source:
        """The source of a question as an identity may see it, started if it does not run; `keep` it on disk."""
        copies = self._copies if keep else None
        source = self._sources.get((identity, list_watch))
        if source is None:
            source = Source(list_watch, identity, self._client_of(authorization), self._chain_of, self._is_up)
            self._sources[identity, list_watch] = source.start(copies, self._trusts)
            metrics.SOURCES.set(len(self._sources))
            return source
        if copies is not None:
            source.keep(copies)
        if authorization:
            # Tokens rotate: the identity's newest one is the one that lives.
            source.reflector.client = source.client = self._client_of(authorization)
        return source

    def sentinel(self, list_watch: ListWatch) -> Source:
        """A source of the hub's own that never stops, and that notices a restored cloud for all sources."""
        source = Source(list_watch, "", self._client_of(""), self._chain_of, self._is_up, self._compare)
        source.users += 1
        self._sources["", list_watch] = source.start(self._copies, self._trusts)
        return source

    def list_watches(self, identity: str, info: RequestInfo) -> list[ListWatch]:
        """What is kept of a resource for an identity, running or on disk."""
        running = [list_watch for whose, list_watch in self._sources if whose == identity]
        kept = self._copies.list_watches(identity) if self._copies is not None else []
        return [each for each in dict.fromkeys([*running, *kept]) if each.type == info.type]

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        for source in self:
            source.inputs_changed(inputs)

    def rules_changed(self, filters_of: Callable[[ViewKey, ListWatch], tuple[Filter, ...]]) -> None:
        """Give each view the filters that the rules now bind to its component."""
        for source in self:
            for key, viewing in source.views.items():
                filters = filters_of(key, source.list_watch)
                if filters != viewing.filters:
                    source.switch(viewing, filters)

    def hurry(self) -> None:
        """The cloud is back: end the delays of reflectors."""
        for source in self:
            source.reflector.recovered()

    async def _every(self, seconds: float, do: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            do()

    def _trusts(self, version: int) -> bool:
        """Whether the cloud can have been at the version of a copy from disk."""
        watched = [each.store.version for each in self if each.reflector.state is State.WATCHING]
        return self._cloud_at is None or version <= max(self._cloud_at, *watched, 0)

    def _compare(self, version: int) -> None:
        """After an outage: where the cloud is behind any copy, all are listed anew, which tells for sure."""
        self._cloud_at = version
        if any(max(source.store.version, source.store.given_version) > version for source in self):
            for source in self:
                source.reflector.relist()

    def _sweep(self) -> None:
        for key, source in list(self._sources.items()):
            if source.sweep(self._idle):
                del self._sources[key]
                source.close()
        metrics.SOURCES.set(len(self._sources))

    def _remind(self) -> None:
        for source in self:
            source.remind()
