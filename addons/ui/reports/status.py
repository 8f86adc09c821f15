"""The reports of a hub about itself: `status` in some twenty numbers, `servers`, `link`, `components` and `journal`."""

from __future__ import annotations

import datetime
import math
from typing import Any

from prometheus_client.metrics import Counter

from addons.filters.filter import READS
from addons.rules.table import Rules
from addons.settings import Settings, version
from addons.telemetry import metrics
from addons.telemetry.component_traffic import Totals, link_bytes
from addons.telemetry.labels import HUB
from addons.ui.running_hub import RunningHub
from addons.views.sources import Sources
from kube.reflector.state import State
from kube.requests.node_pools import POOL_LABEL


def status(hub: RunningHub) -> dict[str, Any]:
    """`fromCopies` are bytes that components got from copies since the start: neither errors nor relayed ones.

    `reached` says whether a server has answered since then; `via` is the node whose way to the cloud is borrowed,
    `uplink` the one of this node that leads there.
    """
    rules = hub.rules.rules
    up_today, down_today = hub.traffic.link_today()
    _, down = link_bytes()
    budget = hub.settings.link_budget
    states = [source.reflector.state for source in hub.sources]
    return {
        "version": version(),
        "node": hub.settings.node,
        "pool": hub.settings.pool or _pool_by_label(hub.sources, hub.settings.node),
        "mode": hub.settings.mode,
        "url": _plain_url(hub.settings),
        "cloud": {
            "up": hub.cloud.is_up,
            "reached": any(
                math.isfinite(server.heard) for server in (*hub.cloud.servers, *hub.cloud.borrowed)
            ),
            "since": hub.link.since.isoformat(timespec="seconds"),
            "seconds": hub.link.seconds(),
            "via": hub.cloud.lender,
            "uplink": str(hub.cloud.leading_uplink or ""),
            "servers": servers(hub),
        },
        "drill": link(hub),
        "rules": {
            "known": hub.rules.is_known,
            "whyUnknown": "" if hub.rules.is_known else hub.rules.why_unknown,
            "digest": rules.digest,
            "problems": len(rules.problems) + rules.unnamed_problems,
            "filterModules": hub.modules.problem if hub.modules is not None else "",
        },
        "closedListeners": hub.closed(),
        "sources": {
            "all": len(states),
            "following": states.count(State.WATCHING),
            "refused": states.count(State.REFUSED),
        },
        "views": sum(len(source.views) for source in hub.sources),
        "watchers": sum(len(o.view.watchers) for source in hub.sources for o in source.views.values()),
        "journal": hub.offline.waiting() if hub.offline is not None else 0,
        "bytes": {
            "linkUpToday": up_today,
            "linkDownToday": down_today,
            "linkDown": down,
            "sent": hub.traffic.sent(),
            "fromCopies": hub.traffic.copied(),
            "budget": budget.told(metrics.total(metrics.LINK_BUDGET_SPENT)) if budget else "",
        },
    }


def _plain_url(settings: Settings) -> str:
    """Where processes of this node reach the hub; "" where it has no plain port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.listen, settings.listen)  # noqa: S104 - not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}" if settings.port else ""


def link(hub: RunningHub) -> dict[str, Any]:
    """The running drill; `link` is `online` without one."""
    return hub.drills.describe() if hub.drills is not None else {"allowed": False, "link": "online"}


def servers(hub: RunningHub) -> list[dict[str, Any]]:
    """Each server of the cloud and its condition."""
    return [
        {"server": str(server.server), "condition": server.condition, "reason": server.reason}
        for server in (*hub.cloud.servers, *hub.cloud.borrowed)
    ]


def _pool_by_label(sources: Sources, node: str) -> str:
    """The pool that the node's label names in the hub's own copies; "" where no copy has this node."""
    items = (
        source.store.get(("", node))
        for source in sources
        if not source.user and source.list_watch.type.group_resource == "nodes"
    )
    return next((item.labels.get(POOL_LABEL, "") for item in items if item is not None), "")


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


def journal(hub: RunningHub) -> dict[str, Any]:
    """Statuses by path, events by number alone: their contents stay private. Counts are since the hub started."""
    described = hub.offline.describe()["journal"] if hub.offline is not None else {}
    return {
        "waiting": hub.offline.waiting() if hub.offline is not None else 0,
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
