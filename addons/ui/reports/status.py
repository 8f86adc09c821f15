"""The report `status`: the state of this hub in some twenty numbers."""

from __future__ import annotations

import math
from typing import Any

from addons.settings import Settings, version
from addons.telemetry.component_traffic import link_bytes
from addons.telemetry.metrics import LINK_BUDGET_SPENT, total
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
            "budget": budget.told(total(LINK_BUDGET_SPENT)) if (budget := hub.settings.link_budget) else "",
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
