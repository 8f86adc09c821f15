"""The node's sources: one reflector and store per question to the cloud, with the projections and views that use them.

A source starts when it is first asked for and stops some minutes after its last user. Views of one component on
one source are kept as long, so that a client that re-opens its watch finds its history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from addons.filters.filter import Filter
from addons.offline.copies import Copies, Copy
from addons.offline.start_from_disk import StartFromDisk
from addons.telemetry import metrics
from kube.concurrency.pulse import Pulse
from kube.errors import StatusError, unavailable
from kube.http.client import Client, Unreachable
from kube.requests.request_info import RequestInfo
from kube.store.projection import Chain, InputKey, Projection
from kube.store.reflector import ListWatch, Malformed, Reflector, State
from kube.store.store import Store
from kube.store.view import Form, Scope, View

BOOKMARK_INTERVAL = 60.0
"""Seconds between bookmarks on a quiet watch, as kube-apiserver's."""
SWEEP_INTERVAL = 10.0
"""Seconds between looks for what is no longer used."""

REASONS = {Unreachable: "broken off", Malformed: "malformed", StatusError: "error"}
"""Of what stands between a source and the cloud, as a metric's label."""

ChainOf = Callable[[tuple[Filter, ...], str], Chain | None]
"""The chain of some filters, for objects of a resource (a metric's label); None without filters."""


@dataclass(frozen=True, slots=True)
class ViewKey:
    """Who looks at a source, and at what of it. The filters are no part: a rule's edit changes them under a watch."""

    component: str
    verb: str
    scope: Scope
    metadata_only: bool


@dataclass(slots=True)
class Viewing:
    """A view, the filters it is to look through, and when it was last used.

    It goes on looking through the old ones while the new ones lack an input: `awaited` is what it waits for.
    """

    view: View
    filters: tuple[Filter, ...]
    used: float
    awaited: Projection | None = None


class Source:
    """One question, kept answered."""

    def __init__(
        self,
        list_watch: ListWatch,
        identity: str,
        client: Client,
        chain_of: ChainOf,
        is_up: Callable[[], bool],
        compare_version: Callable[[int], None] | None = None,
    ) -> None:
        self.is_up = is_up
        self.list_watch = list_watch
        self.client = client
        self.identity = identity
        self.store = Store()
        self.reflector = Reflector(client, list_watch, self.store, compare_version=compare_version)
        self.views: dict[ViewKey, Viewing] = {}
        self.projections: dict[tuple[Filter, ...], Projection] = {}
        self.users = 0
        self.used = time.monotonic()
        self.copy: Copy | None = None
        self._restoring: StartFromDisk | None = None
        self._chain_of = chain_of
        self._judged = Pulse()
        self._judging: asyncio.Task[None] | None = None

    def start(self, copies: Copies | None, trusts: Callable[[int], bool]) -> Source:
        """Begin: from disk if kept there. A copy of a version that `trusts` denies is listed anew."""
        path, run = self.list_watch.path, self.reflector.run
        if copies is not None:
            copy = self.keep(copies)
            self._restoring = StartFromDisk(copy, self.store, self.reflector, trusts, path)
            run = self._restoring.run
        self._task = asyncio.create_task(run(), name=f"source {path}")
        self._errors = asyncio.create_task(self._follow_errors(), name=f"errors {path}")
        return self

    def keep(self, copies: Copies) -> Copy:
        """Keep the source on disk from now on."""
        if self.copy is None:
            self.copy = copies.copy(self.identity, self.list_watch, self.store)
        self.copy.use()
        return self.copy

    def close(self) -> None:
        self._task.cancel()
        self._errors.cancel()
        if self._judging is not None:
            self._judging.cancel()
        if self.copy is not None:
            self.copy.close()
        for viewing in self.views.values():
            viewing.view.close()
        self.views.clear()
        self._drop_projections()

    @contextmanager
    def in_use(self) -> Iterator[Source]:
        self.users += 1
        try:
            yield self
        finally:
            self.users -= 1
            self.used = time.monotonic()

    async def ready(self, wait: float, version: int = 0) -> None:
        """Return once the store is complete and of `version` or later.

        StatusError: the cloud's refusal, or 503 when there is no first copy within `wait` seconds.
        """
        asked = self.reflector.refusal
        self.reflector.retry_now()
        try:
            async with asyncio.timeout(wait):
                while not self._is_ready(version):
                    refusal = self.reflector.refusal
                    if refusal is not None and refusal is not asked:
                        raise refusal
                    if not self._is_restoring and not self.store.complete and not self.is_up():
                        raise unavailable(f"{self._what}: the cloud cannot be reached, and there is no copy")
                    await self._moved()
        except TimeoutError:
            if self.reflector.refusal is not None:
                raise self.reflector.refusal from None
            why = self.reflector.error or "the cloud has not answered yet"
            raise unavailable(f"{self._what}: {why}", retry_after=1) from None

    async def view(self, key: ViewKey, filters: tuple[Filter, ...], wait: float) -> View:
        """The view for a client, judged in full. The store must be complete.

        StatusError 503 when an input of the filters is not known within `wait` seconds.
        """
        viewing = self.views.get(key)
        if viewing is None:
            view = View(self._projection(filters), key.scope, Form(metadata_only=key.metadata_only))
            viewing = self.views[key] = Viewing(view, filters, 0.0)
        elif viewing.filters != filters:
            self.switch(viewing, filters)
        viewing.used = time.monotonic()
        try:
            async with asyncio.timeout(wait):
                while viewing.view.projection.is_pending or viewing.awaited is not None:
                    self._judge()
                    await self._judged.wait()
        except TimeoutError:
            raise unavailable("an input of the filters is not known yet", retry_after=1) from None
        return viewing.view

    def switch(self, viewing: Viewing, filters: tuple[Filter, ...]) -> None:
        """Let a view look through other filters; its watchers are told the difference."""
        viewing.filters = filters
        viewing.awaited = self._projection(filters)
        self._switch_judged()

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        for projection in list(self.projections.values()):
            projection.inputs_changed(inputs)
        self._switch_judged()

    def remind(self) -> None:
        for viewing in self.views.values():
            viewing.view.send_bookmark()

    def sweep(self, idle: float) -> bool:
        """Close views that nobody used for `idle` seconds; True when nobody has used the source for as long."""
        now = time.monotonic()
        if self.users and self.copy is not None:
            self.copy.use()
        for key, viewing in list(self.views.items()):
            if viewing.view.watchers:
                viewing.used = now
            elif now - viewing.used > idle:
                del self.views[key]
                viewing.view.close()
        self._drop_projections()
        return not self.users and not self.views and now - self.used > idle

    @property
    def _what(self) -> str:
        return self.list_watch.type.group_resource

    @property
    def _is_restoring(self) -> bool:
        return self._restoring is not None and self._restoring.pending

    def _is_ready(self, version: int) -> bool:
        known = self.store.complete and not self._is_restoring
        return known and self.store.version >= version and self.reflector.refusal is None

    async def _moved(self) -> None:
        moved = asyncio.ensure_future(self.store.next_update())
        changed = asyncio.ensure_future(self.reflector.changed.wait())
        try:
            await asyncio.wait((moved, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            changed.cancel()

    async def _follow_errors(self) -> None:
        """What the cloud no longer lets this identity see is shown to nobody: watches end with the cloud's words."""
        counters = {kind: metrics.SOURCE_ERRORS.labels(self._what, text) for kind, text in REASONS.items()}
        counted = None
        while True:
            await self.reflector.changed.wait()
            error = self.reflector.error
            if error is not None and error is not counted:
                counters[type(error)].inc()
                counted = error
            if self.reflector.refusal is not None:
                if self.copy is not None:
                    self.copy.refused(self.reflector.refusal)
                for viewing in self.views.values():
                    viewing.view.end_watches(self.reflector.refusal)

    def _judge(self) -> None:
        """Have what is left of long lists judged, in turns with all else that the loop does."""
        if any(not each.is_evaluated for each in self.projections.values()) and (
            self._judging is None or self._judging.done()
        ):
            self._judging = asyncio.create_task(self._judge_rest(), name=f"judging {self.list_watch.path}")

    async def _judge_rest(self) -> None:
        while left := [each for each in self.projections.values() if not each.is_evaluated]:
            for projection in left:
                projection.evaluate_some()
            await asyncio.sleep(0)
        self._switch_judged()

    def _switch_judged(self) -> None:
        self._judge()
        for viewing in self.views.values():
            if viewing.awaited is not None and not viewing.awaited.is_pending:
                viewing.view.switch(viewing.awaited)
                viewing.awaited = None
        self._drop_projections()
        self._judged.notify()

    def _projection(self, filters: tuple[Filter, ...]) -> Projection:
        projection = self.projections.get(filters)
        if projection is None:
            projection = self.projections[filters] = Projection(
                self.store, self._chain_of(filters, self.list_watch.type.resource)
            )
        return projection

    def _drop_projections(self) -> None:
        awaited = [viewing.awaited for viewing in self.views.values()]
        for filters, projection in list(self.projections.items()):
            if not projection.in_use and projection not in awaited:
                del self.projections[filters]
                projection.close()


class Sources:
    """All sources, by who asks the cloud and what."""

    def __init__(
        self,
        client_of: Callable[[str], Client],
        chain_of: ChainOf,
        idle: float,
        copies: Copies | None = None,
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
        """The hub's source of a question that also notices a restored cloud, for all of them."""
        source = Source(list_watch, "", self._client_of(""), self._chain_of, self._is_up, self._compare)
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
