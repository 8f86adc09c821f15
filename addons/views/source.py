"""One source: a reflector and its store, with the projections and views of that store.

The views of a component are kept for some minutes after their last client, so that a client that re-opens its watch
finds its history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from addons.filters.filter import Filter
from addons.telemetry import metrics
from addons.views.persistence import SourceCopies, SourceCopy, StartFromCopy
from kube.concurrency.pulse import Pulse
from kube.errors import StatusError, unavailable
from kube.http.client import Client, Unreachable
from kube.store.projection import Chain, InputKey, Projection
from kube.store.reflector import ListWatch, Malformed, Reflector
from kube.store.scope import Scope
from kube.store.store import Store
from kube.store.view import Form, View

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
        self.copy: SourceCopy | None = None
        self._restoring: StartFromCopy | None = None
        self._chain_of = chain_of
        self._judged = Pulse()
        self._judging: asyncio.Task[None] | None = None

    def start(self, copies: SourceCopies | None, trusts: Callable[[int], bool]) -> Source:
        """Begin: from disk if kept there. A copy of a version that `trusts` denies is listed anew."""
        path, run = self.list_watch.path, self.reflector.run
        if copies is not None:
            self._restoring = self.keep(copies).start(self.reflector, trusts)
            run = self._restoring.run
        self._task = asyncio.create_task(run(), name=f"source {path}")
        self._errors = asyncio.create_task(self._follow_errors(), name=f"errors {path}")
        return self

    def keep(self, copies: SourceCopies) -> SourceCopy:
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
            raise unavailable(f"{self._what}: {self.why_empty()}", retry_after=1) from None

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

    def why_empty(self) -> str:
        """What keeps the source from its first copy, for people."""
        return str(self.reflector.error or "the cloud has not answered yet")

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
