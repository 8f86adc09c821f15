"""How egress watches its servers: what probes say, how often they ask, and who is told."""

from __future__ import annotations

import asyncio
import functools
from typing import cast

import pytest

from addons.egress import (
    PROBE_INTERVAL,
    PROBE_PATH,
    PROBE_TIMEOUT,
    RECOVERY_INTERVAL,
    Egress,
)
from addons.requests.headers import ANSWERED_HEADER, SERVER_HEADER
from addons.settings import parse_server
from addons.telemetry import metrics
from addons.upstream.health import Cloud, Condition, ServerHealth
from kube.http.client import Client, RawResponse, Unreachable
from kube.http.kubeconfig import NO_CREDENTIALS
from tests.addons.support.cutting import Cut
from tests.addons.support.observed import beats_of, until, value_of

A = parse_server("https://a:6443")
ORIGIN = ("127.0.0.1", 4000)


class Server:
    """A cloud as probes find it."""

    def __init__(self) -> None:
        self.says: int | Exception = 200
        self.answered = True
        self.asked: list[tuple[str, str, float]] = []
        self.headers: list[dict[str, str]] = []

    def was_asked_since(self, count: int) -> bool:
        return len(self.asked) > count

    def with_headers(self, headers: dict[str, str]) -> Server:
        self.headers.append(headers)
        return self

    async def relay(
        self, method: str, path: str, *, headers: tuple[()], body: bytes, timeout: float
    ) -> RawResponse:
        assert (headers, body) == ((), b"")
        self.asked.append((method, path, timeout))
        if isinstance(self.says, Exception):
            raise self.says
        return RawResponse(self.says, {ANSWERED_HEADER: "a"} if self.answered else {}, b"ok")


@pytest.fixture
def server() -> Server:
    return Server()


async def run_probe(server: Server, connections: Cut, script: list[int | Exception]) -> Egress:
    """An egress whose one server answered probes by the script, in virtual time."""
    egress = Egress(connections)
    egress.start(Cloud([ServerHealth(A)], "priority"), NO_CREDENTIALS, ORIGIN, cast(Client, server))
    try:
        for says in script:
            server.says = says
            asked = len(server.asked)
            await until(functools.partial(server.was_asked_since, asked), 60)
        await asyncio.sleep(0)
    finally:
        egress.done()
    return egress


OK, REFUSED, BROKEN = 200, 403, 500
GONE = Unreachable("no route")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("script", "condition"),
    [
        ([OK], Condition.UP),
        ([REFUSED], Condition.UP),
        ([OK, BROKEN], Condition.UP),
        ([OK, BROKEN, BROKEN], Condition.DOWN),
        ([GONE], Condition.DOWN),
        ([OK, GONE], Condition.DOWN),
        ([GONE, OK], Condition.RECOVERING),
        ([GONE, OK, OK], Condition.UP),
        ([GONE, OK, BROKEN], Condition.DOWN),
        ([GONE, OK, GONE, OK], Condition.RECOVERING),
        ([GONE, OK, REFUSED], Condition.UP),
    ],
)
async def test_what_probes_say_of_a_server(
    server: Server, connections: Cut, script: list[int | Exception], condition: Condition
) -> None:
    egress = await run_probe(server, connections, script)
    assert egress.cloud.servers[0].condition is condition
    assert set(server.asked) == {("GET", PROBE_PATH, PROBE_TIMEOUT)}
    assert server.headers == [{SERVER_HEADER: str(A)}], "each probe names its server"


@pytest.mark.looptime
async def test_a_server_that_is_down_is_probed_more_often(server: Server, connections: Cut) -> None:
    loop = asyncio.get_running_loop()
    begin_ = loop.time()
    await run_probe(server, connections, [OK, OK])
    assert loop.time() - begin_ == pytest.approx(PROBE_INTERVAL, abs=0.2)
    for seen in (GONE, BROKEN):
        begin_ = loop.time()
        await run_probe(server, connections, [seen, seen])
        assert loop.time() - begin_ == pytest.approx(RECOVERY_INTERVAL, abs=0.2)


@pytest.mark.looptime
async def test_the_hubs_own_error_is_no_answer(server: Server, connections: Cut) -> None:
    server.answered = False
    egress = await run_probe(server, connections, [502])
    assert egress.cloud.servers[0].condition is Condition.DOWN


@pytest.mark.looptime
async def test_a_server_that_speaks_to_others_is_up(server: Server, connections: Cut) -> None:
    """A probe behind a full link waits for its turn."""
    loop = asyncio.get_running_loop()
    egress = Egress(connections, loop.time)
    health = ServerHealth(A)
    egress.start(Cloud([health], "priority"), NO_CREDENTIALS, ORIGIN, cast(Client, server))
    server.says = GONE
    health.heard = loop.time() + 1
    await until(functools.partial(server.was_asked_since, 0), 60)
    assert health.usable
    await until(functools.partial(server.was_asked_since, 1), 60)
    await asyncio.sleep(0)
    assert not health.usable
    egress.done()


@pytest.mark.looptime
async def test_a_probe_outlives_whatever_goes_wrong(server: Server, connections: Cut) -> None:
    """A probe that dies would leave its server as it is for good, and say nothing."""
    egress = await run_probe(server, connections, [RuntimeError("unforeseen"), GONE])
    assert egress.cloud.servers[0].condition is Condition.DOWN


def test_a_black_hole_is_noticed_in_time() -> None:
    assert PROBE_INTERVAL + PROBE_TIMEOUT < 6


@pytest.mark.looptime
async def test_recovery_is_told(server: Server, connections: Cut) -> None:
    egress = Egress(connections)
    beats = beats_of(egress.changed)
    egress.start(Cloud([ServerHealth(A)], "priority"), NO_CREDENTIALS, ORIGIN, cast(Client, server))
    server.says = GONE
    await asyncio.sleep(0.5)
    assert (beats(), value_of(metrics.SERVER_UP.labels(str(A)))) == (1, 0)
    server.says = OK
    await asyncio.sleep(3)
    assert (beats(), value_of(metrics.SERVER_UP.labels(str(A)))) == (2, 1)
    egress.done()
