"""The allowed silence of a server, derived from its round trips, and the detection of a black hole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.link.health import Cloud, Condition
from addons.link.probes import SPARE_INTERVAL
from addons.link.timeouts import (
    LONGEST,
    OPENING,
    PROBE_AFTER_SILENCE,
    PROBE_INTERVAL,
    PROBE_TIMEOUT,
    TimeoutEstimator,
    parse_duration,
)
from addons.link.uplinks.uplink import parse_uplinks
from kube.http.client import Client, Unreachable
from tests.addons.support.observed import until
from tests.addons.support.probed_server import BROKEN, A, World

GONE = Unreachable("no route")


@pytest.fixture
def server() -> Iterator[World]:
    world = World()
    yield world
    world.probes.close()


@pytest.mark.looptime
async def test_a_server_that_answers_other_requests_is_up(server: World) -> None:
    """A probe waits behind the data of a full link."""
    loop, health = asyncio.get_running_loop(), server.health
    server.delay = 20.0
    server.start()
    for _ in range(10):
        health.last_received = loop.time()
        await asyncio.sleep(PROBE_TIMEOUT - 0.1)
    assert health.usable
    assert len(server.asked) <= 2
    health.last_received = last = loop.time()
    await until(lambda: not health.usable, 60)
    assert loop.time() - last < 6.0


@pytest.mark.looptime
async def test_a_server_that_sends_data_is_not_probed(server: World) -> None:
    loop, health = asyncio.get_running_loop(), server.health
    server.start()
    await until(lambda: len(server.asked) == 1, 60)
    for _ in range(20):
        await asyncio.sleep(PROBE_INTERVAL - 0.5)
        health.last_received = loop.time()
    assert len(server.asked) == 1
    await asyncio.sleep(PROBE_INTERVAL + 0.1)
    assert len(server.asked) == 2


@pytest.mark.looptime
async def test_a_server_that_sends_only_errors_is_probed(server: World) -> None:
    loop, health = asyncio.get_running_loop(), server.health
    server.start()
    await until(lambda: len(server.asked) == 1, 60)
    server.says = BROKEN
    began = loop.time()
    while health.usable and loop.time() - began < 60:
        await asyncio.sleep(0.5)
        health.last_received, health.is_erring = loop.time(), True
    assert loop.time() - began < 6.0


@pytest.mark.looptime
@pytest.mark.parametrize("round_trip", [0.05, 0.3, 1.0, 2.0, 3.0, 6.0])
async def test_a_black_hole_is_noticed_in_six_seconds_or_three_round_trips(
    server: World, round_trip: float
) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(30):
        server.health.timeouts.measured(round_trip)
    server.delay = round_trip
    server.start()
    await asyncio.sleep(60)
    assert server.health.usable
    server.delay = 3600.0
    await until(lambda: not server.health.usable, 60)
    assert loop.time() - server.health.last_received <= max(6.0, 3 * round_trip + 0.1)


@pytest.mark.looptime
@pytest.mark.parametrize("round_trip", [0.05, 2.0])
async def test_a_server_with_a_pending_response_is_probed_sooner(server: World, round_trip: float) -> None:
    """A lost lease renewal must not wait for the full silence before the probe."""
    loop, health = asyncio.get_running_loop(), server.health
    server.pong_after = round_trip
    server.start()
    await asyncio.sleep(60)
    pings = server.pings
    await until(lambda: server.pings > pings, 60)
    await asyncio.sleep(round_trip)  # the response
    pings = server.pings
    health.note_request(loop.time())
    health.last_received = loop.time()
    await asyncio.sleep(PROBE_INTERVAL - 0.1)
    assert server.pings == pings, "what was answered is owed no longer"
    await asyncio.sleep(0.2 + round_trip)
    server.pong_after = server.delay = 3600.0
    began = loop.time()
    health.note_request(began)
    await until(lambda: not health.usable, 60)
    assert (
        loop.time() - began
        <= min(max(2 * round_trip, PROBE_AFTER_SILENCE), PROBE_INTERVAL) + health.timeouts.silence + 0.1
    )


@pytest.mark.looptime
async def test_a_server_that_is_up_is_only_pinged(server: World) -> None:
    server.pong_after = 0.05
    server.start()
    await asyncio.sleep(60)
    assert len(server.asked) == 1
    assert server.pings >= 20
    assert server.health.timeouts.round_trip == pytest.approx(0.05)


@pytest.mark.looptime
async def test_an_unanswered_ping_is_an_outage_until_probes_succeed(server: World) -> None:
    loop = asyncio.get_running_loop()
    server.pong_after = 0.05
    server.start()
    await asyncio.sleep(20)
    server.pong_after, asked = 3600.0, len(server.asked)
    await until(lambda: not server.health.usable, 60)
    assert loop.time() - server.health.last_received <= 6.0
    await until(lambda: server.health.usable, 60)
    assert len(server.asked) == asked + 2


@pytest.mark.looptime
async def test_a_suspected_server_is_probed_during_a_ping(server: World) -> None:
    server.pong_after = 3.0
    server.start()
    await until(lambda: server.pings == 1, 60)
    server.says = GONE
    server.probes.suspect(server.health)
    await asyncio.sleep(0.01)
    assert not server.health.usable


@pytest.mark.looptime
async def test_probes_end_in_the_middle_of_a_ping(server: World) -> None:
    server.pong_after = 3.0
    server.start()
    await until(lambda: server.pings == 1, 60)
    server.probes.close()
    await asyncio.sleep(60)
    assert (server.pings, len(server.asked)) == (1, 1)


@pytest.mark.looptime
async def test_a_spare_uplink_is_probed_rarely_until_it_is_used(server: World) -> None:
    cloud = Cloud.for_servers([A], parse_uplinks("", "wan1,wan2"), "priority")
    preferred, server.health = cloud.servers
    server.probe(cloud)
    server.probes.start(cast(Client, server))
    server.probes.end(preferred)
    await asyncio.sleep(SPARE_INTERVAL - 1)
    assert len(server.asked) == 1, "once at the start"
    await asyncio.sleep(2)
    assert len(server.asked) == 2
    await asyncio.sleep(PROBE_INTERVAL)
    preferred.failed("no route")
    await asyncio.sleep(2)
    assert len(server.asked) == 3
    server.says = GONE
    await until(lambda: not server.health.usable, 60)
    asked = len(server.asked)
    await asyncio.sleep(5)
    assert len(server.asked) >= asked + 4, "nothing else leads to the cloud"
    preferred.condition = Condition.UP
    asked = len(server.asked)
    await asyncio.sleep(60)
    assert len(server.asked) <= asked + 1


@pytest.mark.looptime
async def test_a_sudden_rise_of_round_trips_to_three_seconds_is_no_outage(server: World) -> None:
    server.delay = 0.05
    server.start()
    await asyncio.sleep(20)
    server.delay = 3.0
    await asyncio.sleep(60)
    assert (server.health.condition, server.cut) == (Condition.UP, [])


SECONDS = st.floats(0.0, 100.0)


def timeouts_of(*round_trips: float) -> TimeoutEstimator:
    timeouts = TimeoutEstimator()
    for each in round_trips:
        timeouts.measured(each)
    return timeouts


def test_an_unmeasured_server_gets_the_shortest_timeouts() -> None:
    timeouts = timeouts_of()
    assert (timeouts.silence, timeouts.distance) == (PROBE_TIMEOUT, 0.0)
    assert timeouts.first_silence == PROBE_INTERVAL + PROBE_TIMEOUT


@pytest.mark.parametrize(
    ("round_trips", "smoothed", "silence"),
    [
        ([0.05], 0.05, PROBE_TIMEOUT),
        ([2.0], 2.0, 2.0 + 4 * 1.0),  # RFC 6298, 2.2: the first variance is half of the round trip
        ([2.0, 4.0], 2.25, 2.25 + 4 * (0.75 * 1.0 + 0.25 * 2.0)),  # 2.3
        ([3.0] * 50, 3.0, 9.0 - PROBE_INTERVAL),
    ],
)
def test_round_trips_are_smoothed(round_trips: list[float], smoothed: float, silence: float) -> None:
    timeouts = timeouts_of(*round_trips)
    assert timeouts.round_trip == pytest.approx(smoothed)
    assert timeouts.silence == pytest.approx(silence)


def test_one_slow_handshake_has_no_lasting_effect_on_timeouts() -> None:
    """After an outage all nodes reconnect at once, and each handshake takes a server seconds."""
    timeouts = timeouts_of(4.0)
    for _ in range(20):
        timeouts.answered(0.05)
    assert timeouts.silence == PROBE_TIMEOUT


def test_the_processing_time_of_a_server_is_not_part_of_the_round_trip() -> None:
    timeouts = timeouts_of(0.05)
    for _ in range(20):
        timeouts.answered(30.0)
    assert timeouts.round_trip == 0.05
    unmeasured = timeouts_of()
    unmeasured.answered(30.0)
    assert unmeasured.round_trip is None


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_timeouts_stay_between_the_configured_minimum_and_the_bound(round_trips: list[float]) -> None:
    timeouts = timeouts_of(*round_trips)
    assert PROBE_TIMEOUT <= timeouts.silence <= LONGEST
    assert timeouts.silence <= timeouts.first_silence <= LONGEST
    assert OPENING <= timeouts.opening <= LONGEST
    assert timeouts.distance <= LONGEST


@given(SECONDS)
def test_a_steady_link_has_timeouts_of_three_round_trips(round_trip: float) -> None:
    timeouts = timeouts_of(*[round_trip] * 60)
    noticed = timeouts.interval + timeouts.silence
    assert noticed == pytest.approx(min(max(5.9, 3 * round_trip), PROBE_INTERVAL + LONGEST), abs=0.01)


@pytest.mark.parametrize("text", ["0.5", "2", "30"])
def test_seconds_with_a_fraction_are_parsed(text: str) -> None:
    assert parse_duration("hub_probe_interval", text) == float(text)


@pytest.mark.parametrize("text", ["", "x", "0.4", "-1", "31", "nan", "inf"])
def test_invalid_seconds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hub_probe_interval is 0.5 to 30 seconds, not"):
        parse_duration("hub_probe_interval", text)
