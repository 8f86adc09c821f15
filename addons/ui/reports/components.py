"""The report `components`: who asked for what in the last hour."""

from __future__ import annotations

import datetime
from typing import Any

from addons.filters.filter import READS
from addons.rules.table import Rules
from addons.telemetry.component_traffic import Totals
from addons.telemetry.labels import HUB
from addons.ui.running_hub import RunningHub


def components(hub: RunningHub) -> list[dict[str, Any]]:
    """Components that asked within the hour or have a watch open, the one with the most bytes first."""
    hour = hub.traffic.last_hour()
    rows = []
    for name, counts in hub.traffic.components().items():
        if name not in hour and not counts.watches:
            continue
        totals = hour.get(name, Totals())
        seen = datetime.datetime.fromtimestamp(counts.last_seen).astimezone()
        rows.append(
            {
                "component": name,
                "requests": totals.requests,
                "errors": totals.errors,
                "watches": counts.watches,
                "bytes": totals.sent,
                "cloudBytes": totals.fetched,
                "reads": sorted(counts.reads),
                "filters": bound_filters(hub.rules.rules, name),
                "lastSeen": seen.isoformat(timespec="seconds"),
            }
        )
    return sorted(rows, key=lambda component: (-component["bytes"], component["component"]))


def known_components(hub: RunningHub) -> list[str]:
    """Those that a rule names, that have a view, or that asked for anything; neither the hub nor nameless ones."""
    views = {key.component for source in hub.sources for key in source.views}
    return sorted((hub.rules.rules.components | views | set(hub.traffic.components())) - {"", HUB})


def bound_filters(rules: Rules, component: str) -> list[str]:
    """The names of the filters that the rules bind to any read of a component, in their order."""
    bound = {
        bound_filter.name
        for filter_ in rules.filters
        for group, resource in filter_.resources
        for verb in READS
        for bound_filter in rules.chain(component, group, resource, verb)
    }
    return [bound_filter.name for bound_filter in rules.filters if bound_filter.name in bound]
