"""Records of a flow besides its bytes: what may be shown, and the filters' verdicts.

The cloud's objects and the verdicts on them are the present ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mitmproxy.flow import Flow

from addons.filters.filter import Filter
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind
from addons.ui.dry_run import DryRunResult, dry_run
from addons.ui.masking import USUALLY, Visible
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.store.scope import Scope
from kube.store.store import Item


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
        return rules.bindings.chain(
            self._context.component, type_.group, type_.resource, self._context.info.verb
        )

    def source(self) -> tuple[Source, Scope] | None:
        """The source of the component's view, and the scope that the component asked for."""
        route = self._context.route
        if route is None or route.kind is not RouteKind.VIEW or route.read is None:
            return None
        for source in self._hub.sources:
            if source.list_watch.type != route.read.type:
                continue
            for key in source.views:
                namespace = key.scope.namespace or source.list_watch.namespace
                if (key.component, namespace) == (self._context.component, route.read.namespace):
                    return source, key.scope
        return None

    def dry_run(self, item: Item) -> DryRunResult:
        """Apply the filters to an object now."""
        return dry_run(item, self.filters, self._hub.inputs)

    def items(self) -> Iterator[Item]:
        """The cloud's objects that the component asked for, filtered or not."""
        opened = self.source()
        if opened is not None:
            source, scope = opened
            yield from (item for item in source.store if scope.matches(item))


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """The record of one flow of this run."""

    filtered: FilteredRead | None
    """None while the hub starts."""
    visible: Visible


_records: WeakKeyDictionary[Flow, FlowRecord] = WeakKeyDictionary()
_NOTHING = FlowRecord(None, USUALLY)


def remember(flow: Flow, record: FlowRecord) -> None:
    """Let content views find the record of a flow."""
    _records[flow] = record


def record_of(flow: Flow | None) -> FlowRecord:
    """The record of a flow; an empty one where the flow was loaded from a file, or is a copy."""
    return _records.get(flow, _NOTHING) if flow is not None else _NOTHING
