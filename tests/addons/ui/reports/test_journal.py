"""The report `journal`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from addons.telemetry import metrics
from addons.ui.reports.journal import journal
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.offline_process import Process
from tests.addons.support.report_parts import running_hub


async def test_what_waits_and_what_was_dropped(parts: HubParts, tmp_path: Path) -> None:
    metrics.JOURNAL_DROPPED.labels("event", "no room").inc(3)
    async with Process(tmp_path).running() as offline:
        hub = dataclasses.replace(running_hub(parts), offline=offline)
        offline._journal.put_event("POST", "/api/v1/namespaces/x/events", "application/json", b"{}")
        found = journal(hub)
    assert (found["waiting"], found["events"], found["statuses"]) == (1, 1, [])
    dropped = {(each["kind"], each["reason"]): each["count"] for each in found["dropped"]}
    assert dropped["event", "no room"] >= 3


async def test_a_hub_that_keeps_nothing(parts: HubParts) -> None:
    assert journal(running_hub(parts)).items() >= {"waiting": 0, "events": 0, "statuses": []}.items()
