"""What a watcher sends before it follows the ring: nothing, a state, or a state that corrects what its client holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kube.store.projection import Projection
from kube.store.scope import Scope
from kube.store.store import Item


@dataclass(frozen=True, slots=True)
class Beginning:
    """Events that the client missed, objects that it must not keep, and then a state."""

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


def correction(projection: Projection, scope: Scope, since: int) -> Beginning:
    """What makes any state of the store's objects at version `since` the one that a projection shows through a scope.

    The scope's selectors hide an object too: the client may hold the object from before its labels changed. Objects of
    other namespaces, and of other names where the scope has a name, the client was never given.
    """
    state, hidden = [], []
    shown = {item.key: item for item in projection if scope.matches(item)}
    for item in projection.store:
        if (now := shown.get(item.key)) is not None:
            state.append(now)
        elif scope.may_have_held(item):
            hidden.append(item)
    gone = projection.store.gone_after(since)
    hidden += [item for key, item in gone.items() if key not in shown and scope.may_have_held(item)]
    return Beginning(state, hidden=hidden)
