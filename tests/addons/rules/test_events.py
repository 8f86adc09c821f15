"""One Event for each bad rule, whichever hub of the cluster writes it first."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import pytest

from addons.rules.events import ProblemEvents, event_of, send_event
from addons.rules.table import MAX_PROBLEMS, Problem
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.client import ApiResponse, Client
from tests.addons.support.observed import until, value_of
from tests.addons.support.offline_parts import Told
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.sessions import new_session

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
PROBLEM = Problem("filter_x", "a/b#c", "there is no filter of that name")
CONFIGMAP = ("kube-system", "yurt-hub-cfg")
UID = "11111111-2222-3333-4444-555555555555"


def test_every_node_names_the_event_alike() -> None:
    one, other = (event_of(PROBLEM, CONFIGMAP, UID, node, NOW) for node in ("n1", "n2"))
    assert one["metadata"] == other["metadata"]
    assert one["source"] != other["source"]
    different = event_of(Problem("filter_x", "a/b#d", PROBLEM.why), CONFIGMAP, UID, "n1", NOW)
    assert different["metadata"] != one["metadata"]


def test_the_event_is_of_this_very_configmap() -> None:
    event: Any = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    assert event["involvedObject"]["uid"] == UID
    other: Any = event_of(PROBLEM, CONFIGMAP, "of one made anew", "n1", NOW)
    assert other["metadata"]["name"] != event["metadata"]["name"], "the first Event tells nothing about it"
    unknown: Any = event_of(PROBLEM, CONFIGMAP, "", "n1", NOW)
    assert "uid" not in unknown["involvedObject"]


def test_people_read_what_is_wrong() -> None:
    event = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    assert event["message"] == "key filter_x: 'a/b#c' is skipped: there is no filter of that name"
    assert event["firstTimestamp"] == "2026-01-02T03:04:05Z"


async def test_the_second_hub_finds_the_event_made() -> None:
    event = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    async with ScriptableCloud() as cloud, new_session() as session:
        client = Client(session, cloud.url, {})
        await send_event(client, event)
        await send_event(client, event)
        (made,) = cloud.store.list("events", "kube-system")
        assert made["involvedObject"]["name"] == "yurt-hub-cfg"


@pytest.mark.parametrize("code", [403, 500])
async def test_a_refused_event_harms_nothing(code: int) -> None:
    event = event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW)
    async with ScriptableCloud() as cloud, new_session() as session:
        rule = cloud.faults.add(Refuse(code, "Refused", "no"))
        await send_event(Client(session, cloud.url, {}), event)
        assert rule.used == 1
        with pytest.raises(StatusError):
            cloud.store.get("events", "yurt-hub-cfg", "kube-system")


async def test_a_cloud_that_is_away_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with new_session() as session:
        client = Client(session, "http://127.0.0.1:1", {})
        with caplog.at_level(logging.INFO):
            await send_event(client, event_of(PROBLEM, CONFIGMAP, UID, "n1", NOW))
        assert "was not sent" in caplog.text


class Counted(Told):
    """A cloud that notes how many requests it has at once."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0

    async def request(self, *args: Any, **how: Any) -> ApiResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return await super().request(*args, **how)


async def test_events_go_one_by_one_and_the_oldest_of_too_many_are_left_out() -> None:
    cloud, before = Counted(), value_of(metrics.RULE_EVENTS_DROPPED)
    events = ProblemEvents(cloud, CONFIGMAP, "n1", pause=0)
    for number in range(MAX_PROBLEMS + 50):
        events.report(Problem("filter_x", f"entry {number}", "bad"), UID)
    sending = asyncio.create_task(events.run())
    await until(lambda: len(cloud.heard) == MAX_PROBLEMS)
    assert cloud.most_at_once == 1
    assert "entry 50" in cloud.heard[0].document["message"]
    assert value_of(metrics.RULE_EVENTS_DROPPED) == before + 50
    events.report(PROBLEM, UID)
    await until(lambda: len(cloud.heard) == MAX_PROBLEMS + 1)
    sending.cancel()


async def test_between_two_events_there_is_a_pause() -> None:
    cloud = Counted()
    events = ProblemEvents(cloud, CONFIGMAP, "n1", pause=3600)
    events.report(PROBLEM, UID)
    events.report(Problem("filter_x", "other", "bad"), UID)
    sending = asyncio.create_task(events.run())
    await until(lambda: cloud.heard)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(cloud.heard) == 1
    sending.cancel()
