"""One Event for each bad rule, whichever hub of the cluster is first."""

from __future__ import annotations

import datetime
import logging

import pytest

from addons.rules.events import event_of, send_event
from addons.rules.table import Problem
from kube.errors import StatusError
from kube.http.client import Client
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.sessions import new_session

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
PROBLEM = Problem("filter_x", "a/b#c", "there is no filter of that name")
CONFIGMAP = ("kube-system", "yurt-hub-cfg")


def test_every_node_names_the_event_alike() -> None:
    one, other = (event_of(PROBLEM, CONFIGMAP, node, NOW) for node in ("n1", "n2"))
    assert one["metadata"] == other["metadata"]
    assert one["source"] != other["source"]
    different = event_of(Problem("filter_x", "a/b#d", PROBLEM.why), CONFIGMAP, "n1", NOW)
    assert different["metadata"] != one["metadata"]


def test_people_read_what_is_wrong() -> None:
    event = event_of(PROBLEM, CONFIGMAP, "n1", NOW)
    assert event["message"] == "key filter_x: 'a/b#c' is skipped: there is no filter of that name"
    assert event["firstTimestamp"] == "2026-01-02T03:04:05Z"


async def test_the_second_hub_finds_the_event_made() -> None:
    event = event_of(PROBLEM, CONFIGMAP, "n1", NOW)
    async with ScriptableCloud() as cloud, new_session() as session:
        client = Client(session, cloud.url, {})
        await send_event(client, event, "kube-system")
        await send_event(client, event, "kube-system")
        (made,) = cloud.store.list("events", "kube-system")
        assert made["involvedObject"]["name"] == "yurt-hub-cfg"


@pytest.mark.parametrize("code", [403, 500])
async def test_a_refused_event_harms_nothing(code: int) -> None:
    event = event_of(PROBLEM, CONFIGMAP, "n1", NOW)
    async with ScriptableCloud() as cloud, new_session() as session:
        rule = cloud.faults.add(Refuse(code, "Refused", "no"))
        await send_event(Client(session, cloud.url, {}), event, "kube-system")
        assert rule.used == 1
        with pytest.raises(StatusError):
            cloud.store.get("events", "yurt-hub-cfg", "kube-system")


async def test_a_cloud_that_is_away_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with new_session() as session:
        client = Client(session, "http://127.0.0.1:1", {})
        with caplog.at_level(logging.INFO):
            await send_event(client, event_of(PROBLEM, CONFIGMAP, "n1", NOW), "kube-system")
        assert "was not sent" in caplog.text
