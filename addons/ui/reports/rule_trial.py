"""The report `rules try`: what an edit of the rules would change for each component. Nothing is applied.

The hub's own copies are filtered twice, by the rules in force and by the edit. No view is touched. A filter that asks
for an input that no filter asked before starts its source, as it would when the edit applies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from addons.filters.filter import READS, Filter
from addons.rules.entries import ANY
from addons.rules.table import Rules, parse_rules
from addons.telemetry.labels import HUB
from addons.ui.explain import hub_source
from addons.ui.reports.components import bound_filters
from addons.ui.reports.evaluation import deadline, in_slices, shown, why
from addons.ui.reports.rules import problems
from addons.ui.running_hub import RunningHub
from addons.views.source import Source
from kube.store.store import Item, key_text

MAX_NAMED = 50
"""Objects of each kind of change that are named for a component and a resource; all are counted."""
MAX_REASONS = 5
"""Reasons that the report gives for one object; `explain` gives all of them."""

type Chains = tuple[tuple[Filter, ...], tuple[Filter, ...]]
"""The filters by the rules in force, and by the edit."""


@dataclass(slots=True)
class Difference:
    """How a component's view of one resource would change."""

    changes: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {kind: {"count": 0, "names": []} for kind in ("gained", "lost", "changed")}
    )
    """The number of objects by what became of them, and the first of them."""
    endpoints_before: int = 0
    endpoints_after: int = 0
    unknown: int = 0
    """Objects for which a filter lacks an input."""
    seen: int = 0


async def try_rules(hub: RunningHub, data: Mapping[str, str] | None) -> dict[str, Any]:
    """`data` are the data of the edited ConfigMap; None where it is deleted. `lost` counts objects and endpoints."""
    now = hub.rules.rules
    edited = parse_rules(data, now.disabled, now.filters)
    end = deadline()
    requests = _asked(hub)
    rows = [
        await _row(hub, of, verbs, chains, end)
        for of in requests
        for chains, verbs in _changed_chains(now, edited, *of).items()
    ]
    seen = {component for component, _, _ in requests}
    named = (now.components | edited.components) - {ANY, HUB}
    return {
        "problems": problems(edited),
        "unnamedProblems": edited.unnamed_problems,
        "changes": edited.digest != now.digest,
        "components": rows,
        "unseen": [
            {"component": name, "before": before, "after": after}
            for name in sorted(named - seen)
            if (before := bound_filters(now, name)) != (after := bound_filters(edited, name))
        ],
        "cached": {
            "gained": sorted(
                name for name in named | seen if name in edited.agents and name not in now.agents
            ),
            "lost": sorted(name for name in named | seen if name in now.agents and name not in edited.agents),
        },
        "lost": {
            "objects": sum(row["lost"]["count"] for row in rows),
            "endpoints": sum(max(0, -row["endpoints"]["difference"]) for row in rows),
        },
        "complete": time.monotonic() <= end,
    }


def _asked(hub: RunningHub) -> list[tuple[str, str, str]]:
    """(component, group, resource) of all that components asked of what filters understand."""
    requests = {
        (key.component, source.list_watch.type.group, source.list_watch.type.resource)
        for source in hub.sources
        for key in source.views
    }
    understood = {of for filter_ in hub.rules.rules.filters for of in filter_.resources}
    for name, counts in hub.traffic.components().items():
        for read in counts.reads:
            resource, _, group = read.partition(".")
            requests.add((name, group, resource))
    return sorted(row for row in requests if row[1:] in understood and row[0] != HUB)


def _changed_chains(
    now: Rules, edited: Rules, component: str, group: str, resource: str
) -> dict[Chains, list[str]]:
    """The verbs whose filters change, by the change."""
    changed: dict[Chains, list[str]] = {}
    for verb in sorted(READS):
        before = now.chain(component, group, resource, verb)
        after = edited.chain(component, group, resource, verb)
        if before != after:
            changed.setdefault((before, after), []).append(verb)
    return changed


async def _row(
    hub: RunningHub, of: tuple[str, str, str], verbs: list[str], chains: Chains, end: float
) -> dict[str, Any]:
    component, group, resource = of
    name = f"{resource}.{group}" if group else resource
    source = hub_source(hub.sources, name)
    difference = Difference()
    if source is not None:
        difference = await _difference(hub, source, component, chains, end)
    before, after = ([filter_.name for filter_ in chain] for chain in chains)
    return {
        "component": component,
        "resource": name,
        "verbs": verbs,
        "before": before,
        "after": after,
        "objects": difference.seen,
        "copy": source is not None,
        **difference.changes,
        "endpoints": {
            "before": difference.endpoints_before,
            "after": difference.endpoints_after,
            "difference": difference.endpoints_after - difference.endpoints_before,
        },
        "unknown": difference.unknown,
    }


async def _difference(
    hub: RunningHub, source: Source, component: str, chains: Chains, end: float
) -> Difference:
    difference = Difference()
    scopes = [key.scope for key in source.views if key.component == component]
    async for item in in_slices(source.store, end):
        if scopes and not any(scope.matches(item) for scope in scopes):
            continue
        difference.seen += 1
        before, after = (shown(item, chain, hub.inputs) for chain in chains)
        if before.pending or after.pending:
            difference.unknown += 1
            continue
        _compare(difference, hub, item, (before.item, after.item), chains[1])
    return difference


def _compare(
    difference: Difference,
    hub: RunningHub,
    item: Item,
    states: tuple[Item | None, Item | None],
    filters: tuple[Filter, ...],
) -> None:
    before, after = states
    same = before.raw == after.raw if before is not None and after is not None else before is after
    if same:
        return
    difference.endpoints_before += endpoints_of(before)
    difference.endpoints_after += endpoints_of(after)
    kind = "gained" if before is None else "lost" if after is None else "changed"
    changes, name = difference.changes[kind], key_text(item.key)
    changes["count"] += 1
    if changes["count"] > MAX_NAMED:
        return
    if kind == "gained":
        changes["names"].append(name)
        return
    reasons = [str(note) for note in why(item, filters, hub.inputs)[:MAX_REASONS]]
    ends = endpoints_of(after) - endpoints_of(before)
    changes["names"].append({"name": name, "reasons": reasons, "endpoints": ends})


def endpoints_of(item: Item | None) -> int:
    """The endpoints of a slice, or the addresses of Endpoints; 0 for other objects."""
    if item is None:
        return 0
    match item.store.kind:
        case "EndpointSlice":
            return len(item.decode().fields.children("endpoints"))
        case "Endpoints":
            return sum(
                len(subset.children("addresses")) for subset in item.decode().fields.children("subsets")
            )
    return 0
