"""What an attached process is sent of changed flows, and what it misses when it reads too slowly."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from mitmproxy.http import HTTPFlow
from mitmproxy.test import taddons, tflow

from addons.link.drills import Drills
from addons.telemetry import metrics
from addons.ui.attached.flow_feed import MAX_FEED_BYTES, MAX_FLOWS, FlowFeed
from addons.ui.commands.attached_flows import records
from addons.ui.flows.bodies import Room
from addons.ui.flows.flows import Flows
from addons.ui.masking import USUALLY


@pytest.fixture(autouse=True)
def master() -> Iterator[None]:
    """A mitmproxy without an interface."""
    with taddons.context():
        yield


class Settled(Flows):
    """Each flow is over, and shows what people may see."""

    def is_settled(self, flow: HTTPFlow) -> bool:
        return True


def flows() -> Flows:
    return Settled(lambda: USUALLY, Drills(lambda: None), bool, bool, Room(0), Room(0))


def sent(feed: FlowFeed) -> list[dict[str, Any]]:
    found = b"".join(feed.next(made) for made in [flows()] * (MAX_FLOWS + 2))
    return list(records(io.BytesIO(found)))


def ended(body: bytes = b"body") -> HTTPFlow:
    flow = tflow.tflow(resp=True)
    assert flow.response is not None
    flow.response.content, flow.live = body, False
    return flow


async def test_a_flow_that_changes_often_is_sent_once_as_it_is() -> None:
    feed, flow, other = FlowFeed(), ended(), ended()
    for each in (flow, other, flow):
        feed.offer(each)
    flow.comment = "changed since"
    told = sent(feed)
    assert [each["flow"]["id"] for each in told] == [other.id, flow.id]
    assert told[1]["flow"]["comment"] == "changed since"
    assert (told[1]["live"], told[1]["is_watch"], told[1]["messages"]) == (False, False, [])


async def test_one_who_reads_too_slowly_misses_the_oldest_and_is_told_how_many() -> None:
    counter = metrics.BOUNDS_REACHED.labels("flows for an attached process")
    before = counter._value.get()
    feed = FlowFeed()
    made = [ended() for _ in range(MAX_FLOWS + 3)]
    for each in made:
        feed.offer(each)
    told = sent(feed)
    assert told[0] == {"dropped": 3}
    assert [each["flow"]["id"] for each in told[1:]] == [each.id for each in made[3:]]
    assert counter._value.get() - before == 3


async def test_large_bodies_are_bounded_together() -> None:
    feed = FlowFeed()
    for _ in range(6):
        feed.offer(ended(b"x" * (MAX_FEED_BYTES // 4)))
    told = sent(feed)
    assert (told[0], len(told)) == ({"dropped": 3}, 4)


async def test_a_closed_feed_sends_nothing_and_wakes_who_waits() -> None:
    feed = FlowFeed()
    feed.offer(ended())
    feed.close()
    await feed.wait()
    assert feed.next(flows()) == b""
