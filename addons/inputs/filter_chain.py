"""Applies a chain of filters to the objects of a projection: decodes, filters, encodes and counts.

OpenYurt's controller annotates every slice whose filtering might have changed, so that hubs filter it again. This hub
filters again by itself, so clients of a filtered view get an event only if the result differs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from addons.filters.chain import apply_chain
from addons.filters.filter import Filter
from addons.filters.verdict import Outcome, Verdict
from addons.inputs.filter_inputs import FilterInputs
from addons.telemetry import metrics
from addons.telemetry.log import Pace
from kube.store.projection import Evaluation
from kube.store.store import Item
from kube.wire.api_objects import ApiObject

TRIGGERS = ("openyurt.io/updateTrigger", "openyurt.io/update-trigger")
"""That annotation on Endpoints and EndpointSlices, as spelled by older and newer versions of OpenYurt."""

_TRIGGER_NAMES = tuple(name.encode() for name in TRIGGERS)

logger = logging.getLogger(__name__)


class FilterChain:
    """Filters with their inputs. If a filter fails for an object, the object is hidden."""

    def __init__(self, filters: tuple[Filter, ...], inputs: FilterInputs, resource: str) -> None:
        self._filters = filters
        self._inputs = inputs
        self._resource = resource
        self._pace = Pace()
        self._counters: dict[tuple[str, Verdict], tuple[Callable[[], None], Callable[[], None]]] = {}
        self._why: dict[tuple[tuple[str, Verdict], ...], tuple[tuple[str, Verdict], ...]] = {}
        """Verdicts on changed or hidden objects, stored once: thousands of objects share a few."""

    def evaluate(self, item: Item) -> Evaluation:
        recorded = self._inputs.ask()
        try:
            obj = item.decode()
            verdict = apply_chain(self._filters, obj, recorded)
            shown = _shown(item, verdict.outcome, obj.encode)
        except Exception:
            # Rate-limited: half a million objects may be malformed, and logging one traceback takes 0.6 ms.
            if self._pace.allows(self._resource):
                logger.exception("%s %s/%s cannot be filtered and is hidden", self._resource, *item.key)
            metrics.FILTER_ERRORS.labels(self._resource).inc()
            return Evaluation(None, frozenset(recorded.reads))
        if not recorded.pending:
            for name, step in verdict.steps:
                self._count(name, step)
        why = () if shown is item else self._why.setdefault(verdict.steps, verdict.steps)
        return Evaluation(shown, frozenset(recorded.reads), recorded.pending, why)

    def is_same(self, before: Item, after: Item) -> bool:
        # No filter or selector reads the annotations that `is_only_triggered` ignores.
        return before.raw == after.raw or is_only_triggered(before, after)

    def _count(self, name: str, verdict: Verdict) -> None:
        counters = self._counters.get((name, verdict))
        if counters is None:
            counters = self._counters[name, verdict] = (
                metrics.FILTER_OBJECTS.labels(name, self._resource, verdict.outcome).inc,
                metrics.FILTER_REASONS.labels(name, verdict.reason).inc,
            )
        for count in counters:
            count()


def chain_of(inputs: FilterInputs, filters: tuple[Filter, ...], resource: str) -> FilterChain | None:
    """Return the chain of these filters for a resource (a metric's label); None without filters."""
    return FilterChain(filters, inputs, resource) if filters else None


def _shown(item: Item, outcome: Outcome, encode: Callable[[], bytes]) -> Item | None:
    if outcome is Outcome.DROPPED:
        return None
    return item.as_filtered(encode()) if outcome is Outcome.CHANGED else item


def is_only_triggered(before: Item, after: Item) -> bool:
    """Whether two versions of an object differ only in a trigger annotation and in a write's bookkeeping.

    Bookkeeping is metadata.resourceVersion and metadata.managedFields. ValueError if a version is malformed.
    """
    # Both encodings contain the names as text, so most events need no parsing.
    if not any(name in item.raw for item in (before, after) for name in _TRIGGER_NAMES):
        return False
    was, now = before.decode(), after.decode()
    return was.annotations != now.annotations and _without_bookkeeping(was) == _without_bookkeeping(now)


def _without_bookkeeping(obj: ApiObject) -> bytes:
    """Encode an object without trigger annotations and bookkeeping. Modifies the object."""
    metadata = obj.fields.child("metadata")
    metadata.clear("resourceVersion")
    metadata.clear("managedFields")
    annotations = {name: text for name, text in obj.annotations.items() if name not in TRIGGERS}
    metadata.set_mapping("annotations", annotations)
    return obj.fields.encode()
