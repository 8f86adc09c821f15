"""Answers reads from the node's copies while the cloud is away, from the newest copy first.

The node has sources, running or on disk, and the cloud's cached answers. The source with the later version is newer for
every object. A list is answered only from a source that holds every object of it, and a 404 only from one that holds
every object that could have the name, and followed the cloud until it went away.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from addons.offline.accepted.accepted_writes import AcceptedWrites
from addons.offline.accepted.newest_forms import NewestForm, update_cached_list
from addons.offline.cached_response import NO_OBJECTS, CachedResponse, newest_object
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.offline.people.forms import first_form, partial_list
from addons.requests.answers import HEADERS, Answer, ClientStream, object_answer
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.requests.object_read import ObjectRead
from addons.requests.offline_policy import USER_TOOLS
from addons.rules.shared_kinds import shared_fields
from addons.views.bounds.quotas import BeyondQuota
from addons.views.list_answer import list_answer
from addons.views.open_view import ViewKey
from addons.views.source import Source
from addons.views.sources import Sources
from addons.views.watch_answer import watch_answer
from kube.errors import (
    StatusError,
    expired,
    not_acceptable,
    not_found,
    too_large_version,
    too_many_requests,
    unavailable,
)
from kube.http.gzip_bodies import one_at_a_time
from kube.reflector.list_watch import ListWatch
from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import RequestInfo, ResourceType
from kube.requests.selectors import FieldSelector, LabelSelector
from kube.store.listing import FULL_OBJECTS, Form, Listing
from kube.store.scope import Scope
from kube.store.store import Item, Key, Store
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoded_objects import Encoded
from kube.wire.negotiation import acceptable

EVALUABLE = frozenset({"metadata.name", "metadata.namespace"})
"""Fields of every object, whose selectors the hub can evaluate on a wider copy."""

type OwnForm = Callable[[str, Item], Awaitable[Item]]


class Part(NamedTuple):
    """The objects of a source that a list requests."""

    source: Source
    form: Form
    scope: Scope

    @property
    def version(self) -> int:
        return self.source.store.version

    def listing(self) -> Listing:
        """List the objects in the order of their keys, as etcd does."""
        store = self.source.store
        items = sorted(filter(self.scope.matches, store), key=lambda item: "/".join(item.key))
        api_version, kind = self.form.listed_type(store.api_version, store.kind)
        return Listing(
            self.form.codec(store.codec), api_version, kind, ListMeta(store.version), items, self.form
        )


class OfflineReads:
    """Reads the copies and cached answers of one identity."""

    def __init__(
        self,
        sources: Sources,
        answers: CachedResponses,
        accepted: AcceptedWrites,
        wait: float,
        own_form: OwnForm | None = None,
    ) -> None:
        """`own_form` returns the object at a path with the node's writes that the cloud has not accepted yet: a watch
        that resumes before the hub counts the cloud as up brings the cloud's form."""
        self._own_form = own_form
        self._sources = sources
        self._answers = answers
        self._accepted = accepted
        self._wait = wait

    async def answer(
        self, identity: CloudIdentity, request: OfflineRequest, read: ObjectRead | None
    ) -> Answer | None:
        """Return the newest answer to a GET or list; None if the node has none.

        StatusError 406 before all others for a form that only the cloud may have, 404 if the object is known to be
        absent, 410 and 504 for a version or page that the node does not have.
        """
        key = request.key(identity.user)
        answer = await self._answers.get(key)
        if answer is None and read is not None and not acceptable(request.accept):
            raise not_acceptable("without the cloud, objects come as JSON, protobuf or a Table")
        if read is None:
            return cached_answer(answer)
        if read.verb == "get":
            forms = [*([answer] if answer is not None else ()), *await self._answers.in_other_forms(key)]
            newest = newest_object(forms)
            if newest is not None and (answer is None or 0 < answer.version() < newest.version()):
                answer = newest
            seen = max((form.version() for form in forms), default=0)
            return await self._object(identity, read, answer, seen)
        return await self._list(identity, request, read, answer)

    async def partial_answer(self, identity: CloudIdentity, read: ObjectRead | None) -> Answer | None:
        """Return the part of a list that the node has, for people; None for other requests, or if it has none."""
        if read is None or read.verb != "list" or read.continued is not None:
            return None
        listing = await partial_list(self._newest_first(identity, read.type, lambda _: True), read)
        return await list_answer(listing) if listing is not None else None

    async def watch(
        self,
        user: str,
        component: str,
        read: ObjectRead,
        stream: ClientStream,
        check: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Send the changes of the node's copies until the client leaves; StatusError 503 without a copy.

        Users' tools may get a copy that holds some of the objects, if none holds every one. `user` is the user whose
        quota counts, "" for the node. `check` is that of `addons.views.watch_answer.watch_answer`.
        """
        chosen: tuple[Source, Scope, Form] | None = None
        may_be_partial = component in USER_TOOLS and read.fields.fields <= EVALUABLE
        evaluable = Scope(read.namespace, read.labels, read.fields) if may_be_partial else None
        async for list_watch, source in self._newest_first(HUB_IDENTITY, read.type, lambda _: True):
            form = first_form(read.accepted, read, source.store)
            read_scope = self._scope_in(source, list_watch, read)
            scope = read_scope or evaluable
            if form is not None and scope is not None and (chosen is None or read_scope is not None):
                chosen = source, scope, form
            if chosen is not None and read_scope is not None:
                break
        if chosen is None:
            raise unavailable(
                f"the cloud cannot be reached, and the hub has no copy of {read.type.group_resource}"
            )
        source, scope, form = chosen
        key = ViewKey(component, "watch", scope, form)
        try:
            self._sources.check_view(source, key, user)
        except BeyondQuota:
            raise too_many_requests("too many different watches", retry_after=60) from None
        with source.in_use():
            view = await source.view(key, self._wait, user)
            await watch_answer(view, read, stream, check)

    def relayed(self, info: RequestInfo, answer: CachedResponse) -> None:
        """Record the version of a list that the cloud has just given to a client."""
        if info.type is not None and (version := answer.list_version()):
            self._sources.filtering.given.relayed(info.type.group_resource, version)

    def heard(self, identity: CloudIdentity, type_: ResourceType | None) -> datetime | None:
        """Return when the cloud last sent something about a resource; None if never in this process."""
        own = (source for source in self._sources if source.user == identity.user)
        heard = max(
            (own_source.reflector.heard for own_source in own if own_source.list_watch.type == type_),
            default=0.0,
        )
        return datetime.now().astimezone() - timedelta(seconds=time.monotonic() - heard) if heard else None

    async def find(self, identity: CloudIdentity, info: RequestInfo) -> list[Item]:
        """Return an object's item in each source that has the full object, the newest source first."""
        assert info.type is not None
        key = _key(info.type, info.namespace, info.name)
        return [
            item
            async for _, source in self._newest_first(identity, info.type, partial(_may_hold, key))
            if (item := source.store.get(key)) is not None
        ]

    async def _object(
        self, identity: CloudIdentity, read: ObjectRead, answer: CachedResponse | None, seen: int
    ) -> Answer | None:
        """Answer a GET. `seen` is the newest version of the object that a client has got."""
        key = _key(read.type, read.namespace, read.name)
        is_known = may_be_gone = False
        ref = ObjectRef.of_type(read.type, *key)
        async for list_watch, source in self._newest_first(identity, read.type, partial(_may_hold, key)):
            item = source.store.get(key)
            if self._accepted.is_unknown(ref, is_held=item is not None):
                break
            has_all = self._sources.has_all(source)
            if may_be_gone and not has_all:
                continue  # a newer copy lacks the object
            if item is not None:
                form = first_form(read.accepted, read, source.store)
                if form is not None and item.version >= seen:
                    if self._own_form is not None and identity == HUB_IDENTITY:
                        item = await self._own_form(read.type.path(read.namespace, read.name), item)
                    return _object(item, form)
                is_known = True
            elif not is_known and source.store.version >= seen and _covers(list_watch, read):
                if has_all:
                    raise not_found(read.type.group_resource, read.name)
                may_be_gone = True
        return _single(answer, read) if answer is not None and not may_be_gone else None

    async def _list(
        self,
        identity: CloudIdentity,
        request: OfflineRequest,
        read: ObjectRead,
        answer: CachedResponse | None,
    ) -> Answer | None:
        token = request.info.options.continue_token
        if token:
            page = answer.page(token) if answer is not None else None
            if page is None:
                raise expired(
                    "The provided continue parameter is too old to display a consistent list result."
                )
            return cached_answer(page)
        part = await self._newest_part(identity, read)
        cached_version = answer.list_version() if answer is not None else 0
        if part is not None or answer is not None:
            _check_version(read, max(cached_version, part.version if part is not None else 0))
        if part is not None and part.version >= cached_version:
            return await list_answer(part.listing())
        ref = ObjectRef.of_type(read.type, read.namespace)
        forms = {} if part is not None and answer is None else self._accepted.newest(ref)
        is_paged = answer is not None and answer.further and not request.info.options.limit
        if answer is not None and (part is not None or forms or is_paged):
            with contextlib.suppress(ValueError, LookupError):
                return await list_answer(await one_at_a_time(lambda: _joined(answer, part, forms, read)))
            if forms or is_paged:
                return None  # neither one page of several nor an earlier state answers the request
        return cached_answer(answer)

    async def _newest_part(self, identity: CloudIdentity, read: ObjectRead) -> Part | None:
        """Return the objects of the newest source that has the complete list in a form for the client.

        Watches of shared resources come from one source for all: an older list would end such a watch again and again.
        """
        parts = [await self._part(identity, read)]
        if identity != HUB_IDENTITY and shared_fields(read.type, (), metadata_only=False) is not None:
            parts.append(await self._part(HUB_IDENTITY, read))
        return max(filter(None, parts), key=lambda part: part.version, default=None)

    async def _part(self, identity: CloudIdentity, read: ObjectRead) -> Part | None:
        sources = self._newest_first(identity, read.type, lambda source: _scope(source, read) is not None)
        async for list_watch, source in sources:
            form = first_form(read.accepted, read, source.store)
            scope = self._scope_in(source, list_watch, read)
            if form is not None and scope is not None:
                return Part(source, form, scope)
        return None

    def _scope_in(self, source: Source, list_watch: ListWatch, read: ObjectRead) -> Scope | None:
        """Like `_scope`; None also for a list of one object, by name, whose absence is not known."""
        scope = _scope(list_watch, read)
        if scope is None or "metadata.name" not in scope.fields.fields or self._sources.has_all(source):
            return scope
        return scope if any(map(scope.matches, source.store)) else None

    async def _newest_first(
        self, identity: CloudIdentity, type_: ResourceType, wanted: Callable[[ListWatch], bool]
    ) -> AsyncIterator[tuple[ListWatch, Source]]:
        """Return the sources of a resource that hold full objects. Those on disk are read one by one, as needed."""
        for list_watch in self._sources.list_watches(identity, type_):
            if not list_watch.metadata_only and wanted(list_watch):
                source = await self._ready(identity, list_watch)
                if source is not None:
                    yield list_watch, source

    async def _ready(self, identity: CloudIdentity, list_watch: ListWatch) -> Source | None:
        source = self._sources.get(identity, list_watch)
        try:
            await source.ready(self._wait)
        except StatusError:
            return None
        return source


def _key(type_: ResourceType, namespace: str, name: str) -> Key:
    return "" if type_.resource == "namespaces" else namespace, name


def _scope(list_watch: ListWatch, read: ObjectRead) -> Scope | None:
    """Return the part of a source's objects that a list requests; None if the source does not hold all of them."""
    if list_watch.namespace not in ("", read.namespace):
        return None
    labels, fields = read.labels, read.fields
    namespace = "" if list_watch.namespace == read.namespace else read.namespace
    if (list_watch.label_selector, list_watch.field_selector) == (labels.canonical, fields.canonical):
        return Scope(namespace, LabelSelector(), FieldSelector())
    if list_watch.label_selector or list_watch.field_selector or not fields.fields <= EVALUABLE:
        return None
    return Scope(namespace, labels, fields)


def _covers(list_watch: ListWatch, read: ObjectRead) -> bool:
    """Whether an object that the source does not hold is known to be absent."""
    if list_watch.label_selector or list_watch.namespace not in ("", read.namespace):
        return False
    return list_watch.field_selector in ("", f"metadata.name={read.name}")


def cached_answer(answer: CachedResponse | None) -> Answer | None:
    """Return the answer as the cloud gave it."""
    return Answer(answer.body, {**answer.headers, **HEADERS}) if answer is not None else None


def _check_version(read: ObjectRead, newest: int) -> None:
    """Raise kube-apiserver's StatusError if the node's copy does not have the version that a list requires."""
    if read.version > newest:
        raise too_large_version(read.version, newest)
    if read.is_exact and read.version < newest:
        raise expired(f"The resourceVersion for the provided list is too old: {read.version}")


def _single(answer: CachedResponse, read: ObjectRead) -> Answer | None:
    """Return the stored answer to a GET in a form that the client accepts; None if it cannot be converted.

    Another request may have stored it: in another form, compressed, or in another API version.
    """
    with contextlib.suppress(ValueError, LookupError):
        cached = answer.single()
        if cached.kind not in NO_OBJECTS:
            store = Store()
            store.replace(
                cached.codec, cached.api_version, cached.kind, cached.decode().version, [cached.raw]
            )
            form = first_form(read.accepted, read, store)
            is_of_version = cached.api_version == read.type.api_version
            return _object(next(iter(store)), form) if form is not None and is_of_version else None
    return cached_answer(answer)


def _joined(
    answer: CachedResponse, part: Part | None, forms: Mapping[ObjectRef, NewestForm], read: ObjectRead
) -> Listing:
    """Join all pages of a cached list, with the objects' later states; ValueError if a page is unreadable."""
    pages = list(answer.pages())
    codec = codec_for(answer.encoding)
    if part is not None and part.source.store.codec is not codec:
        raise ValueError("the copy is in another encoding")
    cached = Store()
    cached.replace(
        codec,
        pages[0].api_version,
        pages[0].kind,
        pages[0].version,
        [raw for page in pages for raw in page.items],
    )
    for ref, newest in forms.items():
        update_cached_list(cached, read, ref, newest)
    items = {item.key: item for item in cached}
    form = part.form if part is not None else FULL_OBJECTS
    for key, item in items.items():
        own = part.source.store.get(key) if part is not None else None
        if own is not None and own.version == item.version:
            items[key] = own
    meta = ListMeta(pages[0].version)
    return Listing(codec, pages[0].api_version, pages[0].kind, meta, list(items.values()), form)


def _may_hold(key: Key, list_watch: ListWatch) -> bool:
    """Whether a source may have the object: kubelet reads each Secret and ConfigMap by a source of its own."""
    namespace, name = key
    by_name = list_watch.field_selector.startswith("metadata.name=")
    return list_watch.namespace in ("", namespace) and (
        not by_name or list_watch.field_selector.split(",")[0] == f"metadata.name={name}"
    )


def _object(item: Item, form: Form) -> Answer:
    store, codec = item.store, form.codec(item.store.codec)
    return object_answer(Encoded(codec, *form.type_of(store.api_version, store.kind), form.raw(codec, item)))
