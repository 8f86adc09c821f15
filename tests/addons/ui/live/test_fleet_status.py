"""A hub's status reports to the fleet, and when they are sent."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from addons.link.health import ServerHealth
from addons.link.servers import Lender
from addons.offline.offline_mode import Offline
from addons.offline.offline_tables import OfflineTables
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.startup.rollback import write_rollback
from addons.telemetry import metrics
from addons.ui.live.own_reports import BYTES_INTERVAL, fleet_status, publish_fleet_status
from kube.fleet import ANNOTATION, LONGEST, HubStatus, read_status
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from tests.addons.support.hub_world import SERVICES, HubWorld
from tests.addons.support.lease_parts import LEASE, World
from tests.addons.support.observed import until
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.support.background import beside


class RecordedReports(Offline):
    def __init__(self, folder: Path) -> None:
        self.reported: list[HubStatus] = []
        self.tables = OfflineTables.at(folder / "cache")

    def publish_status(self, status: str) -> None:
        self.reported.append(read_status(status))


async def test_the_fleet_status_has_pool_server_and_problems(parts: HubWorld) -> None:
    hub = parts.running_hub({"filter_endpoints": "kubelet/nodes"}, pool="hz")
    found = fleet_status(hub)
    assert (found.pool, found.via, found.problems, found.stale) == ("hz", "https://a:6443", 1, 0)


async def test_the_fleet_status_names_the_lender_of_a_borrowed_uplink(parts: HubWorld) -> None:
    hub = parts.running_hub()
    own = hub.cloud.servers[0]
    own.failed("no route")
    lent = ServerHealth(replace(own.server, lender=Lender("https", "10.0.0.2", 10269, node="n2")))
    hub.cloud.borrowed = (lent,)
    assert fleet_status(hub).via == "node n2"


async def test_copies_without_a_running_watch_are_stale(parts: HubWorld, cloud: ScriptableCloud) -> None:
    hub = parts.running_hub()
    cloud.faults.add(Refuse(500), times=None)
    source = parts.sources.get(HUB_IDENTITY, ListWatch(SERVICES))
    await until(lambda: source.reflector.state is State.WAITING)
    assert fleet_status(hub).stale == 1


@pytest.mark.looptime
async def test_a_rolled_back_hub_reports_the_reason(parts: HubWorld, tmp_path: Path) -> None:
    write_rollback(tmp_path, "hub:3: the hub has ended\n" + "x" * 9999)
    heard = RecordedReports(tmp_path)
    hub = replace(parts.running_hub(state_dir=tmp_path), offline=heard)
    task = asyncio.create_task(publish_fleet_status(hub))
    await until(lambda: heard.reported)
    task.cancel()
    assert heard.reported[0].rollback.startswith("hub:3: the hub has ended x")
    assert len(heard.reported[0].dump()) < LONGEST


@pytest.mark.looptime
async def test_a_change_of_the_link_is_reported_at_once_and_bytes_after_an_interval(
    parts: HubWorld, tmp_path: Path
) -> None:
    heard = RecordedReports(tmp_path)
    hub = replace(parts.running_hub(), offline=heard)
    task = asyncio.create_task(publish_fleet_status(hub))
    await asyncio.sleep(60)
    assert len(heard.reported) == 1
    metrics.UPSTREAM_BYTES.labels("down", "https://a:6443").inc(500)
    await asyncio.sleep(60)
    assert len(heard.reported) == 1
    hub.cloud.servers[0].failed("no route")
    await asyncio.sleep(60)
    assert [each.via for each in heard.reported] == ["https://a:6443", ""]
    await asyncio.sleep(BYTES_INTERVAL)
    assert len(heard.reported) == 3
    assert heard.reported[2].down >= 500
    task.cancel()


@pytest.mark.looptime
async def test_a_quiet_hub_sends_renewals_with_few_statuses_and_logs_nothing(
    parts: HubWorld, kubelet: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that has been rolled back: the manager's duties for nodes cost a hub nothing else."""

    class NodeReports(RecordedReports):
        def publish_status(self, status: str) -> None:
            kubelet.lease.publish_status(status)

    hours, heartbeat = 2, 10
    write_rollback(tmp_path, "hub:3: the hub has ended")
    hub = replace(parts.running_hub(state_dir=tmp_path), offline=NodeReports(tmp_path))
    with caplog.at_level(logging.INFO):
        async with kubelet.running(), beside(publish_fleet_status(hub)):
            for _ in range(hours * 3600 // heartbeat):
                await kubelet.put()
                metrics.UPSTREAM_BYTES.labels("up", "https://a:6443").inc(100)
                await asyncio.sleep(heartbeat)
    heard = [each for each in kubelet.cloud.heard if each.method != "GET"]
    assert {(each.method, each.path) for each in heard[1:]} == {("PATCH", LEASE)}
    assert len(heard) <= hours * 3600 // heartbeat + 2, "the first is two, kubelet's Lease and a renewal"
    statuses = [
        each for each in heard if ANNOTATION in each.document.get("metadata", {}).get("annotations", {})
    ]
    assert 1 < len(statuses) <= hours * 3600 / BYTES_INTERVAL + 1
    assert [record.getMessage() for record in caplog.records] == []
