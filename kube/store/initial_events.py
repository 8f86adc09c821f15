"""The first events for a client of a view, and those that correct any state that a client may hold."""

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
"""The label of a slice that names its Service."""


class InitialEvents(NamedTuple):
    """The first events for a client: events that it missed, objects that it must not keep, and then a state."""

    state: Sequence[Item]
    missed: Sequence[bytes] = ()
    hidden: Sequence[Item] = ()
    """Objects that the client may hold and that the view does not show. It gets them as DELETED."""
    is_list: bool = False
    """The state is a whole list, as of a WatchList. The bookmark that ends the state says so."""

    def frames(self, write: Callable[[str, Item], bytes]) -> Iterator[bytes]:
        """The events in their order; `write` makes one of a type and an object."""
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
    """Events that turn any state of a client at version `since` into what a projection shows through a scope.

    With `changed_after` the client's state may differ only in objects that have changed after that version.
    The scope's selectors hide an object too: the client may hold it from before its labels changed. The client cannot
    hold objects of other namespaces or names than the scope's, later ones, or the `unseen`. DELETED of the rest has
    name and version, and what kube-proxy needs (ROUTES).
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
    """The objects that no client of a version holds: the history knows that they came later."""
    first: dict[Key, bool] = {}
    if version > max(store.former_version, store.history.newest_carried):
        for change in store.history.after(version):
            first.setdefault(change.key, change.old is None and not change.is_deletion)
    return {key for key, was_made in first.items() if was_made}


def _name_alone(item: Item) -> Item:
    """Leave the name and the version of an object, and what ROUTES lists of its kind."""
    store = item.store
    named = store.codec.name_alone(store.api_version, store.kind, item.key, item.version)
    if (route := ROUTES.get(store.kind)) is not None:
        with suppress(ValueError):  # a malformed object has its name alone
            obj = decode_object(store.codec.encoding, store.api_version, store.kind, named)
            route(item.decode().fields, obj.fields)
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
    named.keep("endpoints", lambda _endpoint: False)  # in JSON an empty list
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
"""The fields of a deleted object by which kube-proxy finds the rules to undo. It leaves its rules in place for a
Service without ports or cluster IP, or a slice without address type or the label of its Service. A client that checks
types (Python's) refuses one without what the API requires beside that: the number of a port, the list of endpoints."""
