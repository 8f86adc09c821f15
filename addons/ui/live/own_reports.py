"""Reports that a hub sends unasked: its status for the fleet, in its node's Lease, and an exceeded link budget, as log
line, Event and metrics.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Collection, Mapping

from addons.offline.tables.write_behind import WriteBehind
from addons.rules.events import about_node, send_event, warning
from addons.startup.rollback import read_rollback
from addons.telemetry import metrics
from addons.telemetry.link_budget import Spending
from addons.ui.reports.hub_reports import status
from addons.ui.running_hub import RunningHub
from kube.disk.rows import table_of
from kube.fleet import HubStatus
from kube.http.client import Client
from kube.json_type import Json
from kube.reflector.state import State

STATUS_INTERVAL = 5.0
"""Seconds between checks of the hub's status."""
BYTES_INTERVAL = 900.0
"""Seconds between two statuses that differ only in byte counts: 100 statuses of 200 bytes a day."""


def fleet_status(hub: RunningHub, rollback: str = "") -> HubStatus:
    """Return the hub's present status. `rollback` is why it runs instead of a newer hub."""
    report = status(hub)
    stale = [source.reflector.heard for source in hub.sources if source.reflector.state is State.WAITING]
    oldest = min(filter(None, stale), default=None)
    rules = report["rules"]
    own = next((server.server.url for server in hub.cloud.servers if server.usable), "")
    return HubStatus(
        version=report["version"],
        pool=report["pool"],
        via=f"node {lender}" if (lender := hub.cloud.lender) else own,
        since=int(hub.records.link.since.timestamp()),
        stale=len(stale),
        oldest=int(time.time() - time.monotonic() + oldest) if oldest is not None else 0,
        waiting=report["journal"],
        problems=rules["problems"] + bool(rules["filterModules"]) + len(report["closedListeners"]),
        up=report["bytes"]["linkUpToday"],
        down=report["bytes"]["linkDownToday"],
        rollback=rollback,
    )


async def publish_fleet_status(hub: RunningHub) -> None:
    """Publish each new status until cancelled. If only byte counts differ, wait BYTES_INTERVAL.

    A hub without a cache renews no Lease, and publishes nothing.
    """
    latest, at = HubStatus(), float("-inf")
    # The record does not change while the hub runs.
    rollback = await asyncio.to_thread(read_rollback, hub.settings.state_dir)
    while hub.offline is not None:
        await asyncio.sleep(STATUS_INTERVAL)  # a starting hub has no port open yet
        status, now = fleet_status(hub, rollback), asyncio.get_running_loop().time()
        if status.lasting() != latest.lasting() or now - at >= BYTES_INTERVAL:
            latest, at = status, now
            hub.offline.publish_status(status.dump())


COUNT_INTERVAL = 10.0
"""Seconds between checks of the link's byte counts."""
COUNTS_PER_WRITE = 6
"""Checks after which the count is written to disk: a killed hub loses a minute."""
TABLE = table_of("link budget")
ROW = "spent"
REASON = "LinkBudgetSpent"

logger = logging.getLogger(__name__)


def _now() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


async def track_link_budget(
    hub: RunningHub, client: Client, now: Callable[[], datetime.datetime] = _now
) -> None:
    """Count the link's bytes until cancelled, if there is a budget. `client` sends as the hub."""
    budget = hub.settings.link_budget
    if budget is None:
        return
    spending, row = Spending(budget), None
    metrics.LINK_BUDGET.set(budget.bytes)

    def take(rows: Mapping[str, bytes | None]) -> Collection[str]:
        spending.load_counts(rows.get(ROW) or b"")
        return ()

    if hub.offline is not None:
        row = WriteBehind(hub.offline.tables.access, TABLE)
        await row.open(take)
    looks = 0
    while True:
        is_news = spending.count(metrics.total(metrics.LINK_BYTES), now().date())
        metrics.LINK_BUDGET_SPENT.set(spending.spent)
        if row is not None and (is_news or looks % COUNTS_PER_WRITE == 0):
            row.put(ROW, spending.dump())
        if is_news:
            said = f"the link to the cloud has spent its budget: {budget.summary(spending.spent)}"
            logger.warning("%s; nothing is cut", said)
            await send_event(client, event_of(hub.settings.node, spending.period, said, now()))
        looks += 1
        await asyncio.sleep(COUNT_INTERVAL)


def event_of(node: str, period: str, said: str, now: datetime.datetime) -> Json:
    """Return the Event for a node whose budget is exceeded, one for each period."""
    return warning(about_node(node), f"link-budget-{period}", REASON, said, node, now)
