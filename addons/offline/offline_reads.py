"""Answers GETs and lists from the node's sources while the cloud is away.

A list is answered only from a source that holds every object of it, and a 404 only where a source holds every object
that could have the name.
"""

from __future__ import annotations

from aiohttp import web

from addons.requests.cloud_identity import CloudIdentity
from addons.requests.object_read import ObjectRead
from addons.views.list_response import list_response
from addons.views.responses import object_response
from addons.views.source import Source
from addons.views.sources import Sources
from kube.errors import StatusError, not_found
from kube.requests.request_info import RequestInfo, ResourceType
from kube.requests.selectors import FieldSelector, LabelSelector
from kube.store.list_watch import ListWatch
from kube.store.listing import Form, Listing
from kube.store.scope import Scope
from kube.store.store import Item, Key
from kube.wire.encoded_objects import Encoded
from kube.wire.negotiation import METADATA_KIND

EVALUABLE = frozenset({"metadata.name", "metadata.namespace"})
"""Fields that every object has, so the hub can evaluate a selector of them on a wider copy."""


class OfflineReads:
    """Reads from the sources that one identity has, running or on disk."""

    def __init__(self, sources: Sources, wait: float) -> None:
        self._sources = sources
        self._wait = wait

    async def answer(
        self, read: ObjectRead, identity: CloudIdentity, seen: int = 0
    ) -> web.StreamResponse | None:
        """The answer to a GET or list; None when no source has it. StatusError 404 where it is known to be absent.

        `seen` is a version of the object that the client was given: no source that is older answers a GET.
        """
        forms = {each.encoding: each.kind for each in reversed(read.accepted)}
        absent = False
        for list_watch in self._sources.list_watches(identity, read.type):
            if list_watch.metadata_only or forms.get(list_watch.encoding) not in ("", METADATA_KIND):
                continue
            form = Form(metadata_only=forms[list_watch.encoding] == METADATA_KIND)
            scope = _scope(list_watch, read) if read.verb == "list" else None
            if read.verb == "list" and scope is None:
                continue
            source = await self._ready(identity, list_watch)
            if source is None:
                continue
            if read.verb == "list":
                assert scope is not None
                return await _list(source, form, scope)
            item = source.store.get(_key(read.type, read.namespace, read.name))
            if item is not None and item.version >= seen:
                return _object(source, form, item)
            absent = absent or (item is None and source.store.version >= seen and _covers(list_watch, read))
        if absent:
            raise not_found(read.type.group_resource, read.name)
        return None

    async def find(self, identity: CloudIdentity, info: RequestInfo) -> list[Item]:
        """An object's item in each source that holds it whole."""
        assert info.type is not None
        key, found = _key(info.type, info.namespace, info.name), []
        for list_watch in self._sources.list_watches(identity, info.type):
            source = await self._ready(identity, list_watch) if not list_watch.metadata_only else None
            item = source.store.get(key) if source is not None else None
            if item is not None:
                found.append(item)
        return found

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
    """The part of a source's objects that a list asks for; None when the source does not hold all of them."""
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


async def _list(source: Source, form: Form, scope: Scope) -> web.StreamResponse:
    store = source.store
    api_version, kind = form.type_of(store.api_version, store.kind)
    found = [item for item in store if scope.matches(item)]
    return await list_response(Listing(store.codec, api_version, kind, store.version, found, form))


def _object(source: Source, form: Form, found: Item) -> web.Response:
    store, codec = source.store, source.store.codec
    return object_response(
        Encoded(codec, *form.type_of(store.api_version, store.kind), form.raw(codec, found))
    )
