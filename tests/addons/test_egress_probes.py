"""How egress watches its servers: what probes say, how often they ask, and who is told."""

from __future__ import annotations

import asyncio
import functools
from typing import cast

import pytest

from addons import metrics
from addons.egress import PROBE_INTERVAL, PROBE_PATH, PROBE_TIMEOUT, RECOVERY_INTERVAL, Egress
from addons.health import Cloud, Condition, ServerHealth
from addons.resolve import SERVER_HEADER
from addons.settings import parse_server
from kube.client import Answer, Client, Unreachable
from kube.kubeconfig import NO_CREDENTIALS
from kube.status import StatusError
from tests.addons.cutting import Cut
from tests.addons.observed import beats_of, until, value_of

A = parse_server("https://a:6443")
ORIGIN = ("127.0.0.1", 4000)


class Server:
    """A cloud as probes find it."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[tuple[str, str, float]] = []
        self.headers: list[dict[str, str]] = []

    def was_asked_since(self, count: int) -> bool:
        return len(self.asked) > count

    def with_headers(self, headers: dict[str, str]) -> Server:
        self.headers.append(headers)
        return self

    async def request(self, method: str, path: str, *, timeout: float) -> Answer:
        self.asked.append((method, path, timeout))
        if self.error is not None:
            raise self.error
        return Answer("text/plain", b"ok")


@pytest.fixture
def server() -> Server:
    return Server()


async def run_probe(server: Server, connections: Cut, script: list[Exception | None]) -> Egress:
    """An egress whose one server answered probes by the script, in virtual time."""
    egress = Egress(connections)
    egress.start(Cloud([ServerHealth(A)], "priority"), NO_CREDENTIALS, ORIGIN, lambda: cast(Client, server))
    try:
        for error in script:
            server.error = error
            asked = len(server.asked)
            await until(functools.partial(server.was_asked_since, asked), 60)
        await asyncio.sleep(0)
    finally:
        egress.done()
    return egress


REFUSED = StatusError(403, "Forbidden", "no")
BROKEN = StatusError(500, "InternalError", "etcd failed")
GONE = Unreachable("no route")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("script", "condition"),
    [
        ([None], Condition.UP),
        ([REFUSED], Condition.UP),
        ([BROKEN], Condition.DOWN),
        ([GONE], Condition.DOWN),
        ([None, GONE], Condition.DOWN),
        ([GONE, None], Condition.RECOVERING),
        ([GONE, None, None], Condition.UP),
        ([GONE, None, GONE, None], Condition.RECOVERING),
        ([GONE, None, REFUSED], Condition.UP),
    ],
)
async def test_what_probes_say_of_a_server(
    server: Server, connections: Cut, script: list[Exception | None], condition: Condition
) -> None:
    egress = await run_probe(server, connections, script)
    assert egress.cloud.servers[0].condition is condition
    assert set(server.asked) == {("GET", PROBE_PATH, PROBE_TIMEOUT)}
    assert server.headers == [{SERVER_HEADER: str(A)}], "each probe names its server"


@pytest.mark.looptime
async def test_a_server_that_is_down_is_probed_more_often(server: Server, connections: Cut) -> None:
    loop = asyncio.get_running_loop()
    begin_ = loop.time()
    await run_probe(server, connections, [None, None])
    assert loop.time() - begin_ == pytest.approx(PROBE_INTERVAL, abs=0.2)
    begin_ = loop.time()
    await run_probe(server, connections, [GONE, GONE])
    assert loop.time() - begin_ == pytest.approx(RECOVERY_INTERVAL, abs=0.2)


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
    egress.start(Cloud([ServerHealth(A)], "priority"), NO_CREDENTIALS, ORIGIN, lambda: cast(Client, server))
    server.error = GONE
    await asyncio.sleep(0.5)
    assert (beats(), value_of(metrics.SERVER_UP.labels(str(A)))) == (1, 0)
    server.error = None
    await asyncio.sleep(3)
    assert (beats(), value_of(metrics.SERVER_UP.labels(str(A)))) == (2, 1)
    egress.done()
