"""Tells the fleet of this hub: its status goes to the cloud with the node's Lease."""

from __future__ import annotations

import asyncio
import time

from addons.ui.reports.status import status
from addons.ui.running_hub import RunningHub
from kube.fleet.hub_status import HubStatus
from kube.reflector.state import State

LOOK_INTERVAL = 5.0
"""Seconds between two looks at the hub."""
BYTES_INTERVAL = 900.0
"""Seconds between two statuses that tell of nothing but bytes: 100 statuses of 200 bytes a day."""


def fleet_status(hub: RunningHub) -> HubStatus:
    """The hub as it stands."""
    report = status(hub)
    stale = [source.reflector.heard for source in hub.sources if source.reflector.state is State.WAITING]
    oldest = min(filter(None, stale), default=None)
    rules = report["rules"]
    own = next((server.server.url for server in hub.cloud.servers if server.usable), "")
    return HubStatus(
        version=report["version"],
        pool=report["pool"],
        via=f"node {lender}" if (lender := hub.cloud.lender) else own,
        since=int(hub.link.since.timestamp()),
        stale=len(stale),
        oldest=int(time.time() - time.monotonic() + oldest) if oldest is not None else 0,
        waiting=report["journal"],
        problems=rules["problems"] + bool(rules["filterModules"]) + len(report["closedListeners"]),
        up=report["bytes"]["linkUpToday"],
        down=report["bytes"]["linkDownToday"],
    )


async def tell_fleet(hub: RunningHub) -> None:
    """Tell of each new status until cancelled; of one that differs in bytes alone after a quarter of an hour.

    A hub that keeps nothing renews no Lease, and tells nothing.
    """
    told, at = HubStatus(), float("-inf")
    while hub.offline is not None:
        await asyncio.sleep(LOOK_INTERVAL)  # first: a hub that starts has no port open yet
        status, now = fleet_status(hub), asyncio.get_running_loop().time()
        if status.lasting() != told.lasting() or now - at >= BYTES_INTERVAL:
            told, at = status, now
            hub.offline.say(status.dump())
