"""Log lines about an outage, on a clock that the test sets."""

from __future__ import annotations

import asyncio
import logging

import pytest

from addons.link.health import Cloud, ServerHealth
from addons.link.servers import Lender, Server, parse_server
from addons.link.uplinks.uplink import parse_uplinks
from addons.telemetry import metrics
from addons.ui.link_log import LinkLog, LinkState

pytestmark = pytest.mark.looptime


class World:
    """A cloud of one server whose link the test switches, and a journal that the test fills."""

    def __init__(self) -> None:
        self.health = ServerHealth(parse_server("https://cloud:6443"))
        self.waits = 0
        self.cloud = Cloud([self.health], "priority")
        clock = asyncio.get_running_loop().time
        self.state = LinkState()
        self.log = LinkLog(self.cloud, self.state, lambda: self.waits, "copies", clock)

    async def down(self) -> None:
        self.health.failed("no route to host")
        self.cloud.changed.notify()
        await asyncio.sleep(0.01)

    async def up(self) -> None:
        while not self.health.usable:
            self.health.succeeded()
        self.cloud.changed.notify()
        await asyncio.sleep(0.01)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.name == "addons.ui.link_log"]
    caplog.clear()
    return found


async def test_an_outage_is_logged_at_its_start_and_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    task = asyncio.create_task(world.log.run())
    await asyncio.sleep(0.01)
    await world.down()
    (line,) = lines(caplog)
    assert line.startswith("offline since 20")
    assert line.endswith(", answering from copies (https://cloud:6443: no route to host)")
    await asyncio.sleep(50)
    assert lines(caplog) == []
    await asyncio.sleep(140)
    assert [each.partition(", for ")[2] for each in lines(caplog)] == [
        f"{minutes}m0s now (https://cloud:6443: no route to host)" for minutes in (1, 2, 3)
    ]
    world.waits = 2
    await world.up()
    await asyncio.sleep(1)
    assert lines(caplog) == [], "the line counts the writes, and so waits for them"
    metrics.JOURNAL_REPLAYED.labels("status").inc()
    metrics.JOURNAL_REPLAYED.labels("event").inc()
    world.waits = 0
    await asyncio.sleep(1)
    assert lines(caplog) == ["online again after 3m10s; 2 writes replayed"]
    task.cancel()


async def test_the_end_of_an_outage_is_logged_even_if_the_replay_takes_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    task = asyncio.create_task(world.log.run())
    await world.down()
    world.waits = 7
    await world.up()
    lines(caplog)
    await asyncio.sleep(61)
    assert lines(caplog) == ["online again after 0s; 0 writes replayed, 7 still wait"]
    await world.down()
    assert lines(caplog)[0].startswith("offline since")
    task.cancel()


async def test_the_duration_of_the_links_state_is_reported() -> None:
    world = World()
    task = asyncio.create_task(world.log.run())
    await asyncio.sleep(0.01)
    began = world.state.since
    await world.down()
    gone = world.state.since
    assert gone > began
    await world.up()
    await asyncio.sleep(1)
    assert world.state.since > gone
    assert world.state.seconds() >= 0
    task.cancel()


async def test_changes_of_the_uplink_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    task = asyncio.create_task(world.log.run())
    await asyncio.sleep(0.01)
    assert link_lines() == ["own"]
    await world.down()
    assert link_lines() == ["none"]
    lender = Lender("https", "10.0.0.2", 10269, node="n2")
    world.cloud.borrowed = (ServerHealth(Server("https", "cloud", 6443, lender=lender)),)
    world.cloud.changed.notify()
    await asyncio.sleep(0.01)
    assert link_lines() == ["n2"]
    assert "the cloud cannot be reached directly: using a tunnel through node n2" in lines(caplog)
    while not world.health.usable:
        world.health.succeeded()
    world.cloud.borrowed = ()
    world.cloud.changed.notify()
    await asyncio.sleep(0.01)
    assert link_lines() == ["own"]
    assert lines(caplog) == ["the cloud can be reached directly again: tunnel closed"]
    task.cancel()


async def test_the_current_uplink_to_the_cloud_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    named = Cloud.for_servers([world.health.server], parse_uplinks("", "wan1,wan2"), "priority")
    world.cloud.servers[:], world.cloud.uplink = named.servers, named.uplink
    task = asyncio.create_task(world.log.run())
    await asyncio.sleep(0.01)
    assert link_lines() == ["uplink wan1"]
    world.cloud.servers[0].failed("no route")
    world.cloud.changed.notify()
    await asyncio.sleep(0.01)
    assert link_lines() == ["uplink wan2"]
    assert lines(caplog) == []
    task.cancel()


def link_lines() -> list[str]:
    return [each.labels["via"] for metric in metrics.LINK.collect() for each in metric.samples if each.value]
