"""The hub's data about a flow: which parts may be shown, and access to the filters' present verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mitmproxy.flow import Flow

from addons.filters.filter import Filter
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import RouteKind
from addons.ui.dry_run import DryRunResult, dry_run
from addons.ui.masking import DEFAULT_VISIBILITY, Visible
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.store.scope import Scope
from kube.store.store import Item


class FilteredRead:
    """A component's read of a source, with the filters that the rules in force bind to it."""

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
        """Return the source and the scope of the component's view; None without a view."""
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
        """Yield the cloud's objects that the component selected, before filtering."""
        opened = self.source()
        if opened is not None:
            source, scope = opened
            yield from (item for item in source.store if scope.matches(item))


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """The record of a flow in this process."""

    filtered: FilteredRead | None
    """The flow's read; None while the hub starts."""
    visible: Visible


_records: WeakKeyDictionary[Flow, FlowRecord] = WeakKeyDictionary()
_EMPTY_RECORD = FlowRecord(None, DEFAULT_VISIBILITY)


def remember(flow: Flow, record: FlowRecord) -> None:
    """Store the record of a flow, for content views."""
    _records[flow] = record


def record_of(flow: Flow | None) -> FlowRecord:
    """Return the record of a flow; an empty one if the flow was loaded from a file, or copied."""
    return _records.get(flow, _EMPTY_RECORD) if flow is not None else _EMPTY_RECORD
