"""What filters did to what one component reads: the cloud's object beside the verdict on it, as things are now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from addons.filters.filter import Filter
from addons.filters.verdict import Outcome
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind
from addons.ui.explain import Note, judge
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.store.scope import Scope
from kube.store.store import Item


@dataclass(frozen=True, slots=True)
class Judged:
    """One object of the cloud, and the filters' verdict on it."""

    item: Item
    outcome: Outcome
    notes: tuple[Note, ...]

    @property
    def why(self) -> str:
        """The decisions that dropped or changed something, filter by filter."""
        told = [note for note in self.notes if note.outcome != Outcome.KEPT]
        subjects = [note for note in told if note.subject != "object"] or told
        return "; ".join(dict.fromkeys(map(str, subjects)))


class FilteredRead:
    """The source behind a filtered view, with the filters that the rules in force bind to its reader."""

    def __init__(self, hub: RunningHub, context: RequestContext) -> None:
        self._hub = hub
        self._context = context

    @property
    def filters(self) -> tuple[Filter, ...]:
        type_ = self._context.info.type
        if type_ is None:
            return ()
        rules = self._hub.rules.rules
        return rules.chain(self._context.component, type_.group, type_.resource, self._context.info.verb)

    def source(self) -> tuple[Source, Scope] | None:
        """The source of the component's view, and the scope that the component asked for."""
        route = self._context.route
        if route is None or route.kind is not RouteKind.VIEW or route.read is None:
            return None
        for source in self._hub.sources:
            if source.list_watch.type != route.read.type:
                continue
            for key in source.views:
                if key.component == self._context.component and _is_of(
                    key.scope, source, route.read.namespace
                ):
                    return source, key.scope
        return None

    def judge(self, item: Item) -> Judged:
        """What the filters make of an object now; ValueError when it is malformed."""
        outcome, notes, _ = judge(item, self.filters, self._hub.inputs)
        return Judged(item, outcome, tuple(notes))

    def items(self) -> Iterator[Item]:
        """The cloud's objects that the component asked for, filtered or not."""
        opened = self.source()
        if opened is not None:
            source, scope = opened
            yield from (item for item in source.store if scope.matches(item))


def _is_of(scope: Scope, source: Source, namespace: str) -> bool:
    return (scope.namespace or source.list_watch.namespace) == namespace
