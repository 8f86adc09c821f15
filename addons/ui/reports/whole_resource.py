"""The report `explain` for all objects of a resource: what a component does not see as the cloud has it, and why."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from addons.ui.explain import ExplainRequest, explain, hub_source
from addons.ui.reports.evaluation import Filtered, deadline, in_slices, shown, why
from addons.ui.running_hub import RunningHub
from kube.store.store import Item, key_text

MAX_OBJECTS = 200
"""Hidden and changed objects that the report names with their reasons; all are counted."""


async def explain_resource(hub: RunningHub, question: ExplainRequest) -> dict[str, Any]:
    """`explain` for a question without a name, and what became of each object of the hub's own copy."""
    told = explain(hub.rules.rules, hub.sources, hub.inputs, question)
    counts = {"kept": 0, "changed": 0, "hidden": 0, "unknown": 0}
    objects: list[dict[str, Any]] = []
    end = deadline()
    source = hub_source(hub.sources, question.resource)
    if source is None or told.problem:
        told.problem = told.problem or "the hub has no copy of this resource: nobody asked for it yet"
        return {**asdict(told), "counts": counts, "objects": objects, "complete": True}
    type_ = source.list_watch.type
    filters = hub.rules.rules.chain(told.component, type_.group, type_.resource, question.verb)
    async for item in in_slices(source.store, end):
        if question.namespace and item.key[0] != question.namespace:
            continue
        outcome = _outcome(item, shown(item, filters, hub.inputs))
        counts[outcome] += 1
        if outcome in ("hidden", "changed") and len(objects) < MAX_OBJECTS:
            reasons = [asdict(note) for note in why(item, filters, hub.inputs)]
            named = {"namespace": item.key[0], "name": item.key[1]}
            objects.append({**named, "outcome": outcome, "reasons": reasons})
    return {**asdict(told), "counts": counts, "objects": objects, "complete": time.monotonic() <= end}


def _outcome(item: Item, made: Filtered) -> str:
    if made.pending:
        return "unknown"
    if made.item is None:
        return "hidden"
    return "kept" if made.item is item else "changed"


def text_of(report: dict[str, Any], head: str) -> str:
    """For people: `head` is what `explain` says of the route and the rules."""
    lines = [", ".join(f"{count} {outcome}" for outcome, count in report["counts"].items())]
    for item in report["objects"]:
        lines.append(f"{key_text((item['namespace'], item['name']))}: {item['outcome']}")
        lines += [
            f"  {why['filter']}: {why['subject']} {why['outcome']}: {why['reason']}"
            for why in item["reasons"]
        ]
    left = report["counts"]["hidden"] + report["counts"]["changed"] - len(report["objects"])
    if left > 0:
        lines.append(f"and {left} more: name a namespace")
    return head + "\n".join(lines) + "\n"
