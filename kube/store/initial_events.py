"""Computes the first events of a watch: the initial state, or a correction of the state that a client may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kube.store.projection import Projection
from kube.store.scope import Scope
from kube.store.store import Item, Key, Store
from kube.wire.api_objects import decode_object
from kube.wire.fields import Fields

SERVICE_NAME = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""


class InitialEvents(NamedTuple):
    """The first events for a client, in this order: missed events, DELETED for hidden objects, ADDED for a state."""

    state: Sequence[Item]
    missed: Sequence[bytes] = ()
    hidden: Sequence[Item] = ()
    """Objects that the client may hold and the view hides. The client gets them as DELETED."""
    is_list: bool = False
    """True if the state is a complete list, as in a WatchList. The bookmark after the state then says so."""

    def frames(self, write: Callable[[str, Item], bytes]) -> Iterator[bytes]:
        """Yield the events in order; `write` encodes one from a type and an object."""
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
) -> InitialEvents:
    """Events that turn any state of a client at version `since` into the state that a projection shows within a scope.

    With `changed_after`, the client's state may differ only in objects that have changed after that version. Objects
    that the scope's selectors do not match also get DELETED: the client may hold them from before their labels
    changed. The client cannot hold objects of other namespaces or names than the scope's, newer objects, or the
    `unseen`. A DELETED event has name, uid and version, and the fields that kube-proxy needs (ROUTES).
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
    return InitialEvents(state, hidden=hidden)


def _made_after(store: Store, version: int) -> set[Key]:
    """The objects that the cloud created after a version. No client at that version holds them."""
    first: dict[Key, bool] = {}
    if version > max(store.former_version, store.history.newest_carried):
        for change in store.history.after(version):
            was_made = change.old is None and not change.is_deletion and not change.is_local
            first.setdefault(change.key, was_made)
    return {key for key, was_made in first.items() if was_made}


def _name_alone(item: Item) -> Item:
    """Reduce an object to its name, its uid, by which some clients hold it, its version, and the fields that ROUTES has
    for its kind."""
    store = item.store
    named = store.codec.name_alone(store.api_version, store.kind, item.key, item.version)
    with suppress(ValueError):  # a malformed object is reduced to its name
        full = item.decode()
        obj = decode_object(store.codec.encoding, store.api_version, store.kind, named)
        if full.uid:
            obj.fields.child("metadata").set("uid", full.uid)
        if (route := ROUTES.get(store.kind)) is not None:
            route(full.fields, obj.fields)
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
        added.set("port", port.number("port"))


def _route_of_slice(source: Fields, named: Fields) -> None:
    _copy(source, named, "addressType")
    named.add("endpoints")
    named.keep("endpoints", lambda _endpoint: False)  # an empty list in JSON
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
"""The fields of a deleted object by which kube-proxy finds the rules to remove. It keeps the rules of a Service
without ports or cluster IP, and of a slice without address type or Service label. Clients that validate types
(Python's) also need the fields that the API requires: the number of a port, the list of endpoints."""
