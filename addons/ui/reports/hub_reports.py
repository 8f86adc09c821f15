"""The reports of a hub about itself, except those with arguments. `rules` has each entry's origin and present
effect.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.metrics import Counter

from addons.filters.filter import READS, Filter
from addons.pool.peer_reader import PeerReader
from addons.rules.entries import ANY, RuleEntry
from addons.rules.table import Rules
from addons.settings import Settings
from addons.telemetry import metrics
from addons.telemetry.component_traffic import Totals, link_bytes
from addons.telemetry.labels import HUB
from addons.ui.explain import COMMON_RESOURCES
from addons.ui.running_hub import RunningHub
from addons.views.open_view import OpenView, ViewKey
from addons.views.source import Source
from addons.views.sources import Sources
from addons.views.tally import tallies
from kube.option import VERSION
from kube.reflector.state import State
from kube.reflector.upstream import Upstream
from kube.requests.node_pools import POOL_LABEL

STARTED = datetime.datetime.now(datetime.UTC).isoformat()
"""Start time of this process, by which `edgehub upgrade` distinguishes hubs."""


def sources(hub: RunningHub) -> list[dict[str, Any]]:
    """Return each list and watch of the cloud. `age` and `nextTry` are in seconds."""
    return [_source(source) for source in hub.sources]


def views(hub: RunningHub) -> list[dict[str, Any]]:
    """Return the views of each component, with or without an open watch."""
    return [_view(source, key, opened) for source, key, opened in _opened(hub)]


def watchers(hub: RunningHub) -> list[dict[str, Any]]:
    """Return the open watches, one row for each view; `unread`: events that its slowest watcher has not been sent."""
    return [
        {
            **{
                name: row[name]
                for name in ("component", "path", "namespace", "labelSelector", "fieldSelector")
            },
            "watchers": row["watchers"],
            "unread": max(watcher.unread for watcher in opened.view.watchers),
            "version": row["version"],
            "filters": row["filters"],
        }
        for source, key, opened in _opened(hub)
        if opened.view.watchers
        for row in (_view(source, key, opened),)
    ]


def _opened(hub: RunningHub) -> Iterator[tuple[Source, ViewKey, OpenView]]:
    return ((source, key, opened) for source in hub.sources for key, opened in list(source.views.items()))


def _source(source: Source) -> dict[str, Any]:
    reflector, now = source.reflector, time.monotonic()
    return {
        "path": source.list_watch.path,
        "labelSelector": source.list_watch.label_selector,
        "fieldSelector": source.list_watch.field_selector,
        "encoding": source.list_watch.encoding,
        "metadataOnly": source.list_watch.metadata_only,
        "identity": source.user or "hub",
        "server": reflector.upstream.server if isinstance(reflector.upstream, PeerReader) else "cloud",
        "from": _from(reflector.upstream),
        "state": reflector.state,
        "error": str(reflector.error) if reflector.error else "",
        "complete": source.store.complete,
        "version": source.store.version,
        "objects": len(source.store),
        "age": round(now - reflector.heard, 1) if reflector.heard else None,
        "nextTry": round(max(0.0, reflector.retry_at - now), 1) if reflector.error else None,
        "lists": reflector.lists,
        "watches": reflector.watches,
        "views": len(source.views),
    }


def _from(upstream: Upstream | None) -> str:
    """Return the server that a source reads from: `cloud`, `leader n2` or a relay; "" before its first request."""
    if not isinstance(upstream, PeerReader):
        return "cloud"
    return upstream.peer.name if upstream.peer is not None else upstream.server


def _view(source: Source, key: ViewKey, opened: OpenView) -> dict[str, Any]:
    unchanged, changed, hidden = opened.view.projection.outcomes()
    return {
        "component": key.component,
        "verb": key.verb,
        "path": source.list_watch.path,
        "encoding": source.list_watch.encoding,
        "namespace": key.scope.namespace,
        "labelSelector": key.scope.labels.canonical,
        "fieldSelector": key.scope.fields.canonical,
        "form": key.form.name,
        "filters": [filter_.name for filter_ in opened.filters],
        "kept": unchanged,
        "changed": changed,
        "hidden": hidden,
        "watchers": len(opened.view.watchers),
        "version": opened.view.version,
        "oldest": opened.view.oldest,
        "evaluations": opened.view.projection.evaluations,
    }


def rules(hub: RunningHub) -> dict[str, Any]:
    """Return the rules in force, built-in ones included; `kept`, `changed` and `hidden` count the filter's verdicts."""
    current = hub.rules.rules
    plugins = hub.modules.plugins if hub.modules is not None else ()
    return {
        "known": hub.rules.is_known,
        "digest": current.digest,
        "problems": problems(current),
        "unnamedProblems": current.problems.unnamed,
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
            for filter_ in current.bindings.filters
            for entries in current.bindings.entries[filter_.name].values()
            for entry in entries
        ],
    }


def problems(current: Rules) -> list[dict[str, str]]:
    """Return the skipped entries, with the reasons."""
    return [
        {"key": problem.key, "text": problem.text, "why": problem.why} for problem in current.problems.named
    ]


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
    names = hub.records.traffic.components()
    return {
        "filter": filter_.name,
        "component": entry.component,
        "resources": sorted(resource for _, resource in entry.resources),
        "verbs": sorted(entry.verbs),
        "from": entry.written_in,
        "does": _effect(hub.rules.rules, filter_, entry),
        "matched": bool(views) or (entry.component in names or (entry.component == ANY and bool(names))),
        "views": len(views),
        "kept": sum(view.unchanged for view in views),
        "changed": sum(view.changed for view in views),
        "hidden": sum(view.hidden for view in views),
    }


def _effect(rules: Rules, filter_: Filter, entry: RuleEntry) -> str:
    if filter_.name in rules.bindings.disabled:
        return "switched off by the hub's options"
    if entry.excludes:
        return "takes away"
    bound = any(
        filter_ in rules.bindings.chain(entry.component, group, resource, verb)
        for group, resource in entry.resources
        for verb in entry.verbs
    )
    return "binds" if bound else "taken away by an exclusion"


def why_unready(hub: RunningHub, *, is_to_be_node: bool = False) -> str:
    """Return why the hub is not ready to serve its node; "" if it is.

    With `is_to_be_node` the hub need not match its node yet: an installation starts the hub before it puts the node
    behind it.
    """
    if missing := hub.readiness.waits_for():
        return missing
    if not hub.rules.is_known:
        return f"the filter rules are not known yet: {hub.rules.why_unknown}"
    if refusal := hub.cloud.refusal:
        return refusal
    if closed := hub.readiness.closed():
        return f"not open: {', '.join(closed)}"
    return "" if is_to_be_node else hub.readiness.unfit()


def status(hub: RunningHub) -> dict[str, Any]:
    """Return the hub's state. `fromCopies` are bytes sent from copies since the start, without errors and relayed
    answers.

    `reached`: whether a server has answered since the start. `via`: the node whose link to the cloud is borrowed.
    `uplink`: this node's uplink that reaches the cloud.
    """
    rules = hub.rules.rules
    up_today, down_today = hub.records.traffic.link_today()
    _, down = link_bytes()
    budget = hub.settings.link_budget
    states = [source.reflector.state for source in hub.sources]
    return {
        "version": VERSION,
        "started": STARTED,
        "node": hub.settings.node,
        "pool": hub.settings.pool or _pool_by_label(hub.sources, hub.settings.node),
        "mode": hub.settings.mode,
        "unfit": hub.readiness.unfit(),
        "url": _plain_url(hub.settings),
        "cloud": {
            "up": hub.cloud.is_up,
            "reached": any(server.has_answered for server in (*hub.cloud.servers, *hub.cloud.borrowed)),
            "since": hub.records.link.since.isoformat(timespec="seconds"),
            "seconds": hub.records.link.seconds(),
            "via": hub.cloud.lender,
            "uplink": str(hub.cloud.working_uplink or ""),
            "servers": servers(hub),
        },
        "drill": link(hub),
        "rules": {
            "known": hub.rules.is_known,
            "whyUnknown": "" if hub.rules.is_known else hub.rules.why_unknown,
            "digest": rules.digest,
            "problems": rules.problems.total,
            "filterModules": hub.modules.problem if hub.modules is not None else "",
        },
        "closedListeners": hub.readiness.closed(),
        "sources": {
            "all": len(states),
            "following": states.count(State.WATCHING),
            "refused": states.count(State.REFUSED),
        },
        "views": sum(len(source.views) for source in hub.sources),
        "watchers": sum(len(o.view.watchers) for source in hub.sources for o in source.views.values()),
        "journal": hub.offline.tables.waiting() if hub.offline is not None else 0,
        "bytes": {
            "linkUpToday": up_today,
            "linkDownToday": down_today,
            "linkDown": down,
            "sent": hub.records.traffic.sent(),
            "fromCopies": hub.records.traffic.copied(),
            "budget": budget.summary(metrics.total(metrics.LINK_BUDGET_SPENT)) if budget else "",
        },
    }


def _plain_url(settings: Settings) -> str:
    """Return the URL of the plain port for processes of this node; "" without that port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.listen, settings.listen)  # noqa: S104 - not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}" if settings.port else ""


def link(hub: RunningHub) -> dict[str, Any]:
    """Return the running drill; its `link` is `online` without one."""
    return hub.drills.describe() if hub.drills is not None else {"allowed": False, "link": "online"}


def servers(hub: RunningHub) -> list[dict[str, Any]]:
    """Return each server of the cloud with its condition."""
    return [
        {"server": str(server.server), "condition": server.condition, "reason": server.reason}
        for server in (*hub.cloud.servers, *hub.cloud.borrowed)
    ]


def _pool_by_label(sources: Sources, node: str) -> str:
    """Return the pool that the node's label names, from the hub's copies; "" if no copy has the node."""
    items = (
        source.store.get(("", node))
        for source in sources
        if not source.user and source.list_watch.type.group_resource == "nodes"
    )
    return next((item.labels.get(POOL_LABEL, "") for item in items if item is not None), "")


def components(hub: RunningHub) -> list[dict[str, Any]]:
    """Return the components with a request in the last hour or an open watch, by descending bytes."""
    hour = hub.records.traffic.last_hour()
    rows = []
    for name, counts in hub.records.traffic.components().items():
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
    """Return the components in a rule, with a view, or with a request; without the hub and unnamed ones."""
    views = {key.component for source in hub.sources for key in source.views}
    return sorted((hub.rules.rules.components | views | set(hub.records.traffic.components())) - {"", HUB})


def cached_resources(hub: RunningHub) -> list[str]:
    """Return the resources of which the hub has copies, without those of callers' own tokens."""
    return sorted({source.list_watch.type.group_resource for source in hub.sources if not source.user})


def choices(hub: RunningHub) -> dict[str, list[str]]:
    """Return the names for completion: components, and resources that are cached, filtered, or common on a node."""
    understood = {
        resource for filter_ in hub.rules.rules.bindings.filters for _, resource in filter_.resources
    }
    resources = {*cached_resources(hub), *understood, *COMMON_RESOURCES}
    return {"components": known_components(hub), "resources": sorted(resources)}


def bound_filters(rules: Rules, component: str) -> list[str]:
    """Return the names of the filters that the rules bind to any read of a component, in their order."""
    bound = {
        bound_filter.name
        for filter_ in rules.bindings.filters
        for group, resource in filter_.resources
        for verb in READS
        for bound_filter in rules.bindings.chain(component, group, resource, verb)
    }
    return [bound_filter.name for bound_filter in rules.bindings.filters if bound_filter.name in bound]


def journal(hub: RunningHub) -> dict[str, Any]:
    """Return the journal: statuses by path, events only by number, because their contents are private. Counts are since
    the start.
    """
    described = hub.offline.describe()["journal"] if hub.offline is not None else {}
    return {
        "waiting": hub.offline.tables.waiting() if hub.offline is not None else 0,
        "statuses": described.get("statuses", []),
        "events": described.get("events", 0),
        "unwritten": described.get("unwritten", 0),
        "replayed": _counts(metrics.JOURNAL_REPLAYED),
        "dropped": _counts(metrics.JOURNAL_DROPPED),
    }


def _counts(counter: Counter) -> list[dict[str, Any]]:
    return [
        {**sample.labels, "count": int(sample.value)}
        for metric in counter.collect()
        for sample in metric.samples
    ]


type Report = Callable[[RunningHub], Any]

REPORTS: dict[str, Report] = {
    "status": status,
    "servers": servers,
    "link": link,
    "components": components,
    "sources": sources,
    "views": views,
    "watchers": watchers,
    "rules": rules,
    "journal": journal,
    "choices": choices,
    "pool": lambda hub: hub.pool.describe() if hub.pool is not None else {},
    "offline": lambda hub: hub.offline.describe() if hub.offline is not None else {},
}
"""The reports without arguments, by name, as JSON values; `addons.ui.reports.text` formats them."""
