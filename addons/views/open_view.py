"""An open view of a source, and the key that identifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from addons.filters.filter import Filter
from kube.store.listing import FULL_OBJECTS, Form
from kube.store.projection import Projection
from kube.store.scope import Scope
from kube.store.view import View


class ViewKey(NamedTuple):
    """The key of a view: the component, and the part of the source that it sees. An edit of the rules changes a view's
    filters, not its key."""

    component: str
    verb: str
    scope: Scope
    form: Form = FULL_OBJECTS


@dataclass(slots=True)
class OpenView:
    """A view and its filters. After an edit of the rules, it uses the old filters until the new ones have all
    inputs."""

    view: View
    filters: tuple[Filter, ...]
    user: str
    """The user that opened it; "" for the node's components."""
    used: float
    """Monotonic seconds at which a client last requested or watched the view."""
    next: Projection | None = None
    """The projection to which the view switches once it is evaluated."""
