"""The report `rules`: each rule in force, where it was written, and what it does to whom now."""

from __future__ import annotations

from typing import Any

from addons.filters.filter import Filter
from addons.rules.entries import ANY, RuleEntry
from addons.rules.table import Rules
from addons.ui.running_hub import RunningHub
from addons.views.tally import tallies


def rules(hub: RunningHub) -> dict[str, Any]:
    """`entries` are built-in ones too. `kept`, `changed` and `hidden` are what the filter did itself in its views."""
    current = hub.rules.rules
    plugins = hub.modules.plugins if hub.modules is not None else ()
    return {
        "known": hub.rules.is_known,
        "digest": current.digest,
        "problems": problems(current),
        "unnamedProblems": current.unnamed_problems,
        "cachedComponents": {
            "added": sorted(current.agents.added),
            "removed": sorted(current.agents.removed),
        },
        "filterModules": {
            "filters": [{"filter": plugin.name, "digest": plugin.digest} for plugin in plugins],
            "problem": hub.modules.problem if hub.modules is not None else "",
        },
        "entries": [
            _entry(hub, filter_, entry)
            for filter_ in current.filters
            for entries in current.entries[filter_.name].values()
            for entry in entries
        ],
    }


def problems(current: Rules) -> list[dict[str, str]]:
    """The entries that were skipped, and why."""
    return [{"key": problem.key, "text": problem.text, "why": problem.why} for problem in current.problems]


def _entry(hub: RunningHub, filter_: Filter, entry: RuleEntry) -> dict[str, Any]:
    views = [
        tally
        for source in hub.sources
        for key, opened in source.views.items()
        if filter_ in opened.filters
        and entry.component in (ANY, key.component)
        and (source.list_watch.type.group, source.list_watch.type.resource) in entry.resources
        and not entry.excludes
        for tally in tallies([filter_.name for filter_ in opened.filters], opened.view.projection)
        if tally.filter == filter_.name
    ]
    names = hub.traffic.components()
    return {
        "filter": filter_.name,
        "component": entry.component,
        "resources": sorted(resource for _, resource in entry.resources),
        "verbs": sorted(entry.verbs),
        "from": entry.written_in,
        "does": _effect(hub.rules.rules, filter_, entry),
        "matched": bool(views) or (entry.component in names or (entry.component == ANY and bool(names))),
        "views": len(views),
        "kept": sum(view.kept for view in views),
        "changed": sum(view.changed for view in views),
        "hidden": sum(view.hidden for view in views),
    }


def _effect(rules: Rules, filter_: Filter, entry: RuleEntry) -> str:
    if filter_.name in rules.disabled:
        return "switched off by the hub's options"
    if entry.excludes:
        return "takes away"
    bound = any(
        filter_ in rules.chain(entry.component, group, resource, verb)
        for group, resource in entry.resources
        for verb in entry.verbs
    )
    return "binds" if bound else "taken away by an exclusion"
