"""Reads one list-watch of the cloud for all its clients: a reflector and its store, with projections and views of it.

The views of a component stay open for some minutes after their last client, so that a client that reopens its watch
finds its history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from addons.filters.filter import Filter
from addons.filters.plugins import need_json
from addons.requests.cloud_identity import CloudIdentity
from addons.rules.filtering import Filtering
from addons.rules.issued_versions import ANY_VERSION, IssuedVersions
from addons.telemetry.background import background
from addons.views import source_log
from addons.views.open_view import OpenView, ViewKey
from addons.views.persistence import CheckpointStore, SourceCopies, SourceCopy
from kube.concurrency.notifier import Notifier, wait_for_any
from kube.errors import unavailable
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.store.change_log import Logs
from kube.store.projection import InputKey, Projection
from kube.store.store import Store
from kube.store.view import Noted, View
from kube.wire.encoding import Encoding

type NotedOf = Callable[[Source, ViewKey, View], Noted | None]
"""Finds the observer of a new view's events; None for none."""


class HeldVersions(NamedTuple):
    """The versions of a resource that clients hold when a source of it starts."""

    last_incompatible: int = 0
    """The newest version that clients may hold from filters with other inputs."""
    begin_at: int = 0
    """The version of the first client, 0 for none."""


class Source:
    """The objects of one list-watch, as one identity may read them."""

    def __init__(
        self,
        list_watch: ListWatch,
        identity: CloudIdentity,
        client: Client,
        filtering: Filtering,
        is_up: Callable[[], bool],
        held: HeldVersions,
    ) -> None:
        given, rules = filtering.given, filtering.rules
        self.is_up = is_up
        self.list_watch = list_watch
        self.client = client
        self.user = identity.user
        self.store = Store()
        self.store.former_version = given.of_former(list_watch.type.group_resource)
        self.reflector = Reflector(client, list_watch, self.store, begin_at=held.begin_at)
        self.reflector.reached = partial(_reached, given, self._type, self.store)
        self.views: dict[ViewKey, OpenView] = {}
        self.projections: dict[tuple[Filter, ...], Projection] = {}
        self.users, self.used = 0, time.monotonic()
        self.wanted = Notifier()
        """Notified when a client arrives."""
        self.unread = self.worth = 0
        """`unread`: bytes of events since the last client left. `worth`: bytes of all objects at that time."""
        self.copy: SourceCopy | None = None
        self.is_measured, self.first_size = False, 0
        """Whether the quotas were applied to the first list, and the bytes of its objects then."""
        self.checkpoints = CheckpointStore(self.projections, rules, partial(given.of_elsewhere, self._type))
        self._filtering = filtering
        self._given, self._rules = given, rules
        self._last_incompatible = held.last_incompatible
        """The newest version that clients may hold from filters with inputs that are no longer followed."""
        self._settled = Notifier()
        self._settling: asyncio.Task[None] | None = None
        self._more = Notifier()
        """Notified when a projection has objects to evaluate, while `_settle_all` waits for inputs."""
        self.is_closed = self.is_own = False  # the hub holds one of its own for good
        self.bound: Logs | None = None  # of the projections' logs, shared with other sources
        self.noted: NotedOf = lambda *_: None
        self.given_by_others: Callable[[], int] = lambda: 0

    def start(self, copies: SourceCopies | None) -> Source:
        """Load the copy if there is one, and start the reflector."""
        path = self.list_watch.path
        run = self.persist(copies).start(self.reflector) if copies is not None else self.reflector.run()
        errors = asyncio.create_task(self._follow_errors(), name=f"errors {path}")
        self._tasks: tuple[asyncio.Task[None], ...] = (background(run, f"source {path}"), errors)
        return self

    def persist(self, copies: SourceCopies) -> SourceCopy:
        """Store the source on disk from now on."""
        if self.copy is None:
            self.copy = copies.copy(self.user, self.list_watch, self.store)
            self.checkpoints.write_checkpoints_with(self.copy)
        self.copy.use()
        return self.copy

    def close(self) -> None:
        """End the source, and refuse requests that wait for a view of it."""
        self.is_closed = True
        self._settled.notify()
        for task in filter(None, (*self._tasks, self._settling)):
            task.cancel()
        self._tasks, self._settling = (), None  # a cancelled task keeps its frames, which name this
        if self.copy is not None:
            self.copy.close()
        for key in list(self.views):
            self.views.pop(key).view.close()
        self._drop_projections()
        if not self.users:
            self.store.empty()

    @contextmanager
    def in_use(self) -> Iterator[Source]:
        self.users += 1
        self.wanted.notify()
        try:
            yield self
        finally:
            self.users -= 1
            self.used = time.monotonic()
            self.unread, self.worth = 0, self.store.size
            if self.is_closed and not self.users:
                self.store.empty()

    async def ready(self, wait: float, version: int = 0) -> None:
        """Wait until the store is complete and has `version` or a later one, or the source is closed.

        StatusError: the cloud's refusal, or 503 if there is no first copy within `wait` seconds.
        """
        before = self.reflector.refusal
        self.reflector.retry_now()
        try:
            async with asyncio.timeout(wait):
                while not self._is_ready(version) and not self.is_closed:
                    if self.reflector.refusal is not None and self.reflector.refusal is not before:
                        # The reflector keeps its own: with a traceback it would keep the frames of all its waiters.
                        raise self.reflector.refusal.again()
                    if self.is_lost:
                        raise unavailable(f"{self._type}: the cloud cannot be reached, and there is no copy")
                    await wait_for_any(self.store.next_update(), self.reflector.changed.wait())
        except TimeoutError:
            if self.reflector.refusal is not None:
                raise self.reflector.refusal.again() from None
            raise unavailable(f"{self._type}: {self.why_empty()}", retry_after=1) from None

    def has_view(self, wanted: ViewKey) -> bool:
        """Whether a view for the client is open; `wanted` has the verb of the request."""
        return self._key(wanted) in self.views

    async def view(self, wanted: ViewKey, wait: float, user: str = "") -> View:
        """Return the view for a client, completely evaluated by the rules in force at its return.

        The store must be complete. `wanted` has the verb of the request; lists and watches may share a view. `user` is
        the client's user, "" for the node's components. StatusError 503 if an input of the filters is still unknown
        after `wait` seconds.
        """
        try:
            async with asyncio.timeout(wait):
                while True:
                    if self.is_closed:
                        raise unavailable(f"{self._type}: the hub has evicted its copy", retry_after=1)
                    opened = self._open(wanted, user)
                    if opened.next is None and not opened.view.projection.is_pending:
                        self.checkpoints.write_missing()
                        return opened.view
                    self._settle()
                    await self._settled.wait()
        except TimeoutError:
            raise unavailable("an input of the filters is not known yet", retry_after=1) from None

    @property
    def given_filtered(self) -> int:
        """The newest version that a filtered view of this source may have given a client; 0 for none."""
        is_open = any(opened.view.projection.filtered for opened in self.views.values())
        return self.store.newest_given if is_open else self._last_incompatible

    @property
    def last_incompatible(self) -> int:
        """The newest version at which clients may hold a state that filters made of other inputs."""
        return max((self._last_incompatible, *(each.last_incompatible for each in self.projections.values())))

    def rules_changed(self) -> None:
        """Give each view the filters that the rules now bind to it; its watchers get the difference.

        A view in protobuf ends if a filter needs JSON: its clients reconnect, and get JSON.
        """
        self.checkpoints.rules_edited()
        for key, opened in list(self.views.items()):
            filters = self._filters(key)
            self._learn(key)
            if not self._can_be_read_by(filters):
                self.views.pop(key).view.close()
            elif filters != opened.filters:
                opened.filters, opened.next = filters, self._projection(filters)
        self._switch_settled()

    def inputs_changed(self, inputs: Collection[InputKey]) -> None:
        for projection in list(self.projections.values()):
            projection.inputs_changed(inputs)
        for opened in self.views.values():
            if opened.view.projection.filtered:
                opened.view.expire_ahead()
        self._switch_settled()

    def remind(self) -> None:
        for opened in self.views.values():
            opened.view.send_bookmark()

    def sweep(self, idle: float) -> bool:
        """Close views without a client for `idle` seconds; True if the source itself had none for as long."""
        now = time.monotonic()
        if self.users and self.copy is not None:
            self.copy.use()
        for key, opened in list(self.views.items()):
            if opened.view.watchers:
                opened.used = now
            elif now - opened.used > idle:
                self.views.pop(key).view.close()
        self._drop_projections()
        is_idle = not self.users and not self.views and now - self.used > idle
        return is_idle and self.is_on_disk and not self.is_needed

    @property
    def is_in_use(self) -> bool:
        return self.users > 0 or self.is_own

    @property
    def is_on_disk(self) -> bool:
        """Whether the disk has all changes, so that a new source could begin from the copy."""
        return self.copy is None or self.copy.is_written

    @property
    def is_needed(self) -> bool:
        """Whether the source must stay open: only it knows its clients' versions, or has yet to verify them."""
        has_break = self.store.complete and not self.reflector.verifier.is_verified
        return self.store.has_previous_history or has_break

    @property
    def is_lost(self) -> bool:
        """Whether the source has neither a copy nor a reachable server."""
        upstream = self.reflector.upstream
        has_server = self.is_up() or (upstream is not None and upstream.is_up)
        return not self._is_restoring and not self.store.may_be_shown and not has_server

    def why_empty(self) -> str:
        return str(self.reflector.error or "the cloud has not answered yet")

    @property
    def _type(self) -> str:
        return self.list_watch.type.group_resource

    @property
    def _is_restoring(self) -> bool:
        return self.copy is not None and self.copy.is_starting

    def _is_ready(self, version: int) -> bool:
        known = self.store.may_be_shown and not self._is_restoring
        return known and self.store.version >= version and self.reflector.refusal is None

    async def _follow_errors(self) -> None:
        """Count interruptions, and end all watches with the cloud's message once it refuses this user."""
        failures = source_log.Failures(self.list_watch, self.user)
        while True:
            await self.reflector.changed.wait()
            failures.record(self.reflector.error, is_up=self.is_up())
            if self.reflector.refusal is not None:
                if self.copy is not None:
                    self.copy.refused(self.reflector.refusal)
                for opened in self.views.values():
                    opened.view.end_watches(self.reflector.refusal)

    def _key(self, wanted: ViewKey) -> ViewKey:
        """Return the view's key under the rules in force."""
        group, resource = self.list_watch.type.group, self.list_watch.type.resource
        verb = self._rules().bindings.verb_of_view(wanted.component, group, resource, wanted.verb)
        return wanted._replace(verb=verb)

    def _open(self, wanted: ViewKey, user: str) -> OpenView:
        """Return the view for a client under the rules in force, or make it."""
        key = self._key(wanted)
        opened = self.views.get(key)
        if opened is None:
            filters = self._filters(key)
            if not self._can_be_read_by(filters):
                raise unavailable("the rules have changed under this request", retry_after=1)
            elsewhere, is_shared = partial(self._elsewhere, key), partial(self._is_shared, key)
            view = View(self._projection(filters), key.scope, key.form, elsewhere, is_shared)
            view.noted, view.given_by_others = self.noted(self, key, view), self.given_by_others
            view.given_earlier = partial(self._given.of_earlier, self._type)
            opened = self.views[key] = OpenView(view, filters, user, 0.0)
        if self.is_up():
            self._learn(key)
        opened.used = time.monotonic()
        return opened

    def _elsewhere(self, key: ViewKey) -> int:
        """Return the newest version at which a client of a view may hold a state that the view never showed.

        If the rules filter lists and watches differently, each list is such a state for the view of the watches.
        """
        return ANY_VERSION if self._filters(key) and not self._is_shared(key) else self._known_elsewhere(key)

    def _is_shared(self, key: ViewKey) -> bool:
        """Whether lists and watches of a client use the same view: only then does a checkpoint apply."""
        return self._key(key._replace(verb="list")).verb != "list"

    def _known_elsewhere(self, key: ViewKey) -> int:
        """The part of `_elsewhere` common to all views; ANY_VERSION until the cloud's version is known."""
        if self._filters(key):
            return self._given.of_elsewhere(self._type)
        return self._filtering.issued_under_other_rules(self.list_watch.type)

    def _learn(self, key: ViewKey) -> None:
        if ANY_VERSION in (self._known_elsewhere(key), self.views[key].view.newest_earlier):
            self._given.learn(self._type, self._ask_version)

    async def _ask_version(self) -> None:
        self.reflector.reached(await self.reflector.current_version())

    def _filters(self, key: ViewKey) -> tuple[Filter, ...]:
        type_ = self.list_watch.type
        return self._rules().bindings.chain(key.component, type_.group, type_.resource, key.verb)

    def _can_be_read_by(self, filters: tuple[Filter, ...]) -> bool:
        return self.store.codec.encoding is Encoding.JSON or not need_json(filters)

    def _settle(self) -> None:
        """Start a task that evaluates the remaining objects, or notify the running one of more."""
        if self._settling is None or self._settling.done():
            if any(made.is_pending for made in self.projections.values()) or any(self._unswitched()):
                name = f"filters of {self.list_watch.path}"
                self._settling = asyncio.create_task(self._settle_all(), name=name)
        elif any(self._unswitched()) or not all(made.is_evaluated for made in self.projections.values()):
            self._more.notify()

    async def _settle_all(self) -> None:
        while any(made.is_pending for made in self.projections.values()) or any(self._unswitched()):
            if not all(made.is_evaluated for made in self.projections.values()):
                for projection in list(self.projections.values()):
                    projection.evaluate_some()
                await asyncio.sleep(0)
            elif not any(self._unswitched()):
                # A change of an input switches views itself. The store's own changes are noticed here.
                await wait_for_any(self.store.next_update(), self._more.wait())
            for view in list(self._unswitched()):
                await view.match()
                self._switch_settled()
            self._switch_settled()

    def _unswitched(self) -> Iterator[View]:
        """Yield the views whose next filters are evaluated, so that they can switch."""
        opened = self.views.values()
        return (one.view for one in opened if one.next is not None and not one.next.is_pending)

    def _switch_settled(self) -> None:
        """Switch the views whose next filters are evaluated, except those that `_settle_all` must match first."""
        for opened in self.views.values():
            if opened.next is not None and not opened.next.is_pending and opened.view.is_soon_matched:
                opened.view.switch(opened.next)
                opened.next = None
        self._settle()
        self._drop_projections()
        self._settled.notify()

    def _projection(self, filters: tuple[Filter, ...]) -> Projection:
        projection = self.projections.get(filters)
        if projection is None:
            chain = self._filtering.chain_of(filters, self.list_watch.type.resource)
            projection = Projection(self.store, chain, self._last_incompatible, self.bound)
            self.projections[filters] = projection
            projection.former = self.checkpoints.former(filters)
        return projection

    def _drop_projections(self) -> None:
        upcoming = [opened.next for opened in self.views.values()]
        for filters, projection in list(self.projections.items()):
            if not projection.in_use and projection not in upcoming:
                # Inputs may change until the next such projection is made, at the same version.
                self._last_incompatible = self.store.newest_given if filters else self._last_incompatible
                del self.projections[filters]
                projection.close()
                self.checkpoints.rewrite()


def _reached(given: IssuedVersions, resource: str, store: Store, version: int) -> None:
    """Record the version that the cloud has just reported, or a newer one that the store has by now."""
    given.reached(resource, max(version, store.newest_given))
