"""Answers lists and watches from views, as kube-apiserver would.

Each answer takes four steps: find the source that the caller may read, wait until it is fresh enough, open the caller's
view of it, write the answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial

from addons.filters.filter import Filter
from addons.filters.plugins import need_json
from addons.requests.answers import Answer, ClientRequest, ClientStream, RelayToCloud
from addons.requests.caller import Caller, CredentialSource
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.object_read import ObjectRead
from addons.requests.route_decision import is_of_others
from addons.rules.shared_kinds import is_opt_in, shared_fields, unfiltered_list_watch
from addons.rules.table import Rules
from addons.telemetry import metrics
from addons.views.bounds.first_lists import FirstLists
from addons.views.bounds.quotas import BeyondQuota
from addons.views.consistent_list import wait_until_current
from addons.views.list_answer import PagedLists, list_answer
from addons.views.observed_events import origin_of
from addons.views.open_view import ViewKey
from addons.views.reviews import Reviews
from addons.views.source import Source
from addons.views.sources import Sources
from addons.views.tables.cloud_tables import CloudTable
from addons.views.tally import tallies
from addons.views.watch_answer import watch_answer
from kube.errors import (
    StatusError,
    bad_request,
    expired,
    not_acceptable,
    too_large_version,
    too_many_requests,
    unauthorized,
    unavailable,
)
from kube.http.client import Unreachable
from kube.reflector.list_pages import Malformed
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.store.listing import FULL_OBJECTS, Form
from kube.store.made_forms import form_of
from kube.store.resumption import Resumption
from kube.store.scope import EVERYTHING, Scope
from kube.store.stream_coding import DIFFERENCES, PLAIN
from kube.store.view import View
from kube.store.watcher import Watcher
from kube.tables.server_table import is_known
from kube.wire.encoding import Encoding
from kube.wire.negotiation import METADATA_KINDS, TABLE_KIND, Representation

FUTURE_WAIT = 3.0
"""Seconds for which a list waits for a version newer than the store's, as in kube-apiserver's watch cache."""

CATCH_UP = 1.0
"""Seconds to wait for the events that bring a source to a client's version.

After that the hub asks the cloud whether there are such events.
"""


class NoHistory(Exception):
    """The view's history is too short for a client's version; the cloud's history may reach back to it."""


class Unversioned(Exception):
    """The cloud lists this resource without a resourceVersion."""


class Serving:
    """Answers the lists and watches that the router sends to views."""

    def __init__(
        self,
        sources: Sources,
        reviews: Reviews,
        rules: Callable[[], Rules],
        wait: float,
        confirm_up: Callable[[], Awaitable[bool]],
    ) -> None:
        """`confirm_up` probes the cloud now, and returns whether it is up."""
        self._confirm_up = confirm_up
        self._sources, self._first_lists = sources, FirstLists(sources)
        self._reviews = reviews
        self._rules = rules
        self._wait = wait
        self._unversioned: set[ResourceType] = set()
        """The resources that the cloud lists without a resourceVersion, such as metrics. A watch cannot keep a copy of
        them current."""
        self._paged = PagedLists()

    async def answer(
        self, wanted: ClientRequest, stream: ClientStream, opened: Callable[[Watcher], None] | None = None
    ) -> Answer | None:
        """Return the complete answer to a list; serve a watch until its end and return None. StatusError if that is the
        answer.

        RelayToCloud if no view can answer, and the cloud may. `opened` receives the watcher of a watch, by which it can
        be ended.
        """
        read, form = wanted.route.read, wanted.route.representation
        assert read is not None
        assert form is not None
        retry_after = 0
        try:
            if read.type not in self._unversioned:
                return await self._from_view(wanted, read, form, stream, opened)
        except BeyondQuota as beyond:
            metrics.BEYOND_QUOTA.labels(beyond.what).inc()
            retry_after = beyond.retry_after
        except NoHistory:
            pass  # the cloud knows which events the client missed, and no filter applies
        except Unversioned:
            self._unversioned.add(read.type)
        self._check_past_views(wanted, read, retry_after)
        raise RelayToCloud

    async def _from_view(
        self,
        wanted: ClientRequest,
        read: ObjectRead,
        form: Representation,
        stream: ClientStream,
        opened: Callable[[Watcher], None] | None,
    ) -> Answer | None:
        """Answer in the four steps. Raise BeyondQuota, before anything is written, if the caller may open no further
        view."""
        came = time.monotonic()
        source, scope = await self._source(wanted, read, form)
        with source.in_use():
            await source.ready(self._wait)
            if source.store.complete and not source.store.version:
                raise Unversioned
            self._sources.measure(source, keep=self._rules().is_cached(wanted.component))
            confirmed = await self._fresh_enough(source, read, scope, came)
            key = ViewKey(wanted.component, read.verb, scope, _form_of(source, read, form))
            table = None
            if form.kind == TABLE_KIND and not is_known(read.type):
                table = CloudTable(source.client, source.is_up, read, form.version)
                await table.learn(max(source.store.version, confirmed))
            user = (await self._reviews.identity(wanted.caller)).user
            self._sources.check_view(source, key, user)
            view = await source.view(key, self._wait, user)
            if read.verb == "list" or read.wants_state:
                await view.match()
                view = await source.view(key, self._wait, user)  # an input may have changed meanwhile
            wanted.served.source, wanted.served.version = origin_of(source), view.version
            wanted.served.filters = tallies(wanted.route.filtered_by, view.projection)
            warning = source.reflector.questions.warning
            if read.verb == "list":
                page = self._paged.page(view, read, confirmed)
                if table is not None:
                    page = table.listing(page)
                return await list_answer(page, packed=wanted.reads_differences, warning=warning)
            if read.verb == "watch" and not read.wants_state and read.version:
                confirmed = await self._check_history(wanted, source, read, scope, view)
            is_own = wanted.caller.credential_source is not CredentialSource.HUB
            check = partial(self._check_rights, wanted.caller, read) if is_own else None
            if table is not None:
                stream = table.stream(stream, source.store.api_version, source.store.kind)
            coding = DIFFERENCES if wanted.reads_differences else PLAIN
            await watch_answer(view, read, stream, check, confirmed, coding, opened, warning)
            return None

    async def _check_history(
        self, wanted: ClientRequest, source: Source, read: ObjectRead, scope: Scope, view: View
    ) -> int:
        """Return if the view can bring a client from its version to the current one; the cloud confirms a newer
        version.

        Current names do not show objects created and deleted since the client's version, so the hub requests the names
        at that version. Return the confirmed version, 0 for none. NoHistory if only the cloud can resume the watch, and
        nothing is filtered.
        """
        may_be_of_others = is_of_others(wanted.info, self._sources.filtering.issued_under_other_rules)
        if source.is_up() and source.store.version < read.version and not view.has_confirmed(read.version):
            # For example a relayed list's version, which is newer than the view's last event.
            is_for_view = view.projection.filtered or may_be_of_others
            # The gap of a list that is still to come would end the watch, which its client may have just begun.
            if is_for_view or source.reflector.state is not State.WATCHING:
                with contextlib.suppress(StatusError):
                    await source.ready(CATCH_UP, read.version)
            if source.store.version < read.version:
                if is_for_view:
                    return await self._wait_until_current(source, read, scope, at=read.version)
                await self._check_reached(source, read.version)
        is_lost = view.judge(read.version) is Resumption.EXPIRED
        if is_lost and not (view.projection.filtered or may_be_of_others or wanted.peer) and source.is_up():
            # A restored cloud would advance the client past the copy's previous history.
            if not source.reflector.is_proven and not await self._wait_until_current(source, read, scope):
                raise unavailable("cannot verify the watch history after reconnecting", retry_after=1)
            if read.version <= source.store.former_version:
                return 0
            raise NoHistory
        return 0

    async def _check_reached(self, source: Source, version: int) -> None:
        """Raise StatusError 410 if the cloud has not reached a client's version, because it was restored from a
        backup."""
        try:
            reached = await source.reflector.current_version()
        except (StatusError, Unreachable, Malformed):
            return  # a cloud that does not answer refutes nothing
        if reached < version:
            raise expired(f"too old resource version: {version} (the cloud was restored since)")

    def _check_past_views(self, wanted: ClientRequest, read: ObjectRead, retry_after: int) -> None:
        """Raise StatusError 429 or 400 if the rules filter the read, because only a view can filter.

        410 for a watch that resumes from a version which a view may have given under earlier rules.
        """
        if self._filters(wanted, read):
            if read.type in self._unversioned:
                raise bad_request(
                    f"{read.type.group_resource} have no resourceVersion: they cannot be filtered"
                )
            raise too_many_requests("too many different lists and watches of this user", retry_after)
        if is_of_others(wanted.info, self._sources.filtering.issued_under_other_rules):
            raise expired(
                f"too old resource version: {read.version} (of other filter rules, or another history)"
            )

    def _filters(self, wanted: ClientRequest, read: ObjectRead) -> tuple[Filter, ...]:
        """Return the filters that the rules in force bind to a read."""
        return self._rules().bindings.chain(wanted.component, read.type.group, read.type.resource, read.verb)

    async def _source(
        self, wanted: ClientRequest, read: ObjectRead, form: Representation
    ) -> tuple[Source, Scope]:
        """Return the source that the caller may read, and the scope of it that the caller selects."""
        caller, keep, encoding = wanted.caller, self._rules().is_cached(wanted.component), form.encoding
        begin_at = read.version if read.verb == "watch" and not read.wants_state else 0
        if caller.credential_source is not CredentialSource.HUB:
            await self._check_rights(caller, read)
        is_metadata, further = form.kind in METADATA_KINDS, self._rules().pool_resources
        evaluable = shared_fields(read.type, further, metadata_only=is_metadata)
        if evaluable is not None and read.fields.fields <= evaluable:
            if form.kind == TABLE_KIND and not need_json(self._filters(wanted, read)):
                encoding = Encoding.PROTOBUF  # which the node's components read anyway
            list_watch = unfiltered_list_watch(read.type, encoding)
            list_watch = self._readable_copy(wanted, read, HUB_IDENTITY, list_watch)
            source = self._sources.admit(HUB_IDENTITY, list_watch, keep=keep, begin_at=begin_at)
            if not is_opt_in(read.type) or await self._may_share(source):
                return source, Scope(read.namespace, read.labels, read.fields)
        identity = await self._reviews.identity(caller)
        labels, fields = read.labels.canonical, read.fields.canonical
        list_watch = ListWatch(read.type, read.namespace, labels, fields, encoding=encoding)
        list_watch = self._readable_copy(wanted, read, identity, list_watch)
        await self._first_lists.wait(identity.user, list_watch, self._wait)
        return self._sources.admit(identity, list_watch, keep=keep, begin_at=begin_at), EVERYTHING

    def _readable_copy(
        self, wanted: ClientRequest, read: ObjectRead, identity: CloudIdentity, list_watch: ListWatch
    ) -> ListWatch:
        """Return the list-watch; offline the one in the other encoding, if only that has a copy."""
        encodings = {Encoding.JSON} if need_json(self._filters(wanted, read)) else {*Encoding}
        return self._sources.readable_copy(identity, list_watch, encodings)

    async def _may_share(self, source: Source) -> bool:
        """Whether the node may read the shared resource. If not, a caller that may read it itself does so."""
        with source.in_use(), contextlib.suppress(StatusError):
            await source.ready(self._wait)
        return source.reflector.refusal is None

    async def _check_rights(self, caller: Caller, read: ObjectRead) -> None:
        """Return if the cloud permits this read to the caller itself; StatusError 401, 403 or 503 otherwise."""
        if not caller.authorization:
            raise unauthorized("Unauthorized")
        await self._reviews.may_read(caller.authorization, read)

    async def _fresh_enough(self, source: Source, read: ObjectRead, scope: Scope, came: float) -> int:
        """Wait until the source is as new as the client requires; return the version that the cloud confirmed, 0 for
        none.

        `came` is when the client's request arrived: the hub's requests to the cloud since then are new enough.
        """
        if read.is_consistent:
            if source.reflector.listed > came and source.reflector.is_proven:
                return source.store.version
            return await self._wait_until_current(source, read, scope)
        if read.verb == "watch" and not read.wants_state:
            return 0
        confirmed = await self._reach(source, read, scope)
        if read.is_exact and max(source.store.version, confirmed) != read.version:
            raise expired(f"The resourceVersion for the provided list is too old: {read.version}")
        return confirmed

    async def _reach(self, source: Source, read: ObjectRead, scope: Scope) -> int:
        """Wait for the version that the client names. The hub may have given it before the source had any event of it.

        StatusError 504 for a version that neither the hub nor the cloud knows.
        """
        was_given = read.version <= source.store.given_version
        if not was_given:
            try:
                await source.ready(FUTURE_WAIT, read.version)
            except StatusError as error:
                if error.code != 503 or not source.store.complete:
                    raise
        if read.version <= source.store.version:
            return 0
        confirmed = await self._wait_until_current(source, read, scope)
        if confirmed < read.version and not was_given:
            raise too_large_version(read.version, source.store.version)
        return max(confirmed, read.version)

    async def _wait_until_current(self, source: Source, read: ObjectRead, scope: Scope, at: int = 0) -> int:
        """Wait until the source is as new as the cloud is now, or was at version `at`. Return the version, 0
        offline."""
        if not source.is_up():
            return 0
        try:
            version = await wait_until_current(source, source.client, read, scope, self._wait, at)
        except StatusError as error:
            # So a load balancer answers whose server died under the request, perhaps before a probe noticed.
            if error.code not in (502, 503) or await self._confirm_up():
                raise
            return 0
        if version > source.store.version:
            source.reflector.remind()
        return version


def _form_of(source: Source, read: ObjectRead, form: Representation) -> Form:
    """Select the form of the answer. A kind that the cloud does not serve as protobuf is answered in JSON, if the
    client accepts that."""
    if form.kind == TABLE_KIND and not is_known(read.type):
        return FULL_OBJECTS  # the cloud decides its columns
    encoding = source.store.codec.encoding
    same = form._replace(encoding=encoding)
    # Nothing is converted for a client that takes the cloud's encoding.
    wanted = same if same in read.accepted else form
    made = form_of(wanted, source.store, is_list=read.verb == "list", include=read.include)
    if made is not None:
        return made
    if encoding not in {clause.encoding for clause in read.accepted if clause.kind == form.kind}:
        raise not_acceptable(f"only {encoding} is available for {read.type.group_resource}")
    return FULL_OBJECTS
