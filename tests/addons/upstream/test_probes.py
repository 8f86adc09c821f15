"""What probes say of a server, how often they are sent, and who is notified."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import cast

import pytest

from addons.requests.headers import ANSWERED_HEADER, SERVER_HEADER
from addons.telemetry import metrics
from addons.upstream.health import Cloud, Condition, ServerHealth
from addons.upstream.probes import PROBE_INTERVAL, PROBE_PATH, PROBE_TIMEOUT, RECOVERY_INTERVAL, Probes
from addons.upstream.servers import Server, parse_server
from kube.concurrency.pulse import Pulse
from kube.http.client import Client, RawResponse, Unreachable
from tests.addons.support.observed import beats_of, until, value_of

A = parse_server("https://a:6443")


class World:
    """A server as probes find it, and what the probes did."""

    def __init__(self) -> None:
        self.says: int | Exception = 200
        self.answered = True
        self.asked: list[tuple[str, str, float]] = []
        self.headers: list[dict[str, str]] = []
        self.cut: list[Server] = []
        self.changed = Pulse()
        self.health = ServerHealth(A)
        self.probes = Probes(self._cut, self.changed, lambda: asyncio.get_running_loop().time())

    def start(self) -> None:
        self.probes.start(Cloud([self.health], "priority"), cast(Client, self))

    def _cut(self, server: Server) -> int:
        self.cut.append(server)
        return 1

    def was_asked_since(self, count: int) -> bool:
        return len(self.asked) > count

    def with_headers(self, headers: dict[str, str]) -> World:
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
def server() -> Iterator[World]:
    world = World()
    yield world
    world.probes.close()


async def probed(server: World, script: list[int | Exception]) -> None:
    """Return when the server has answered probes by the script, in virtual time."""
    server.start()
    try:
        for says in script:
            server.says = says
            asked = len(server.asked)
            await until(functools.partial(server.was_asked_since, asked), 60)
        await asyncio.sleep(0)
    finally:
        server.probes.close()


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
    server: World, script: list[int | Exception], condition: Condition
) -> None:
    await probed(server, script)
    assert server.health.condition is condition
    assert set(server.asked) == {("GET", PROBE_PATH, PROBE_TIMEOUT)}
    assert server.headers == [{SERVER_HEADER: str(A)}], "each probe names its server"


@pytest.mark.looptime
async def test_a_server_that_is_down_is_probed_more_often(server: World) -> None:
    loop = asyncio.get_running_loop()
    begin_ = loop.time()
    await probed(server, [OK, OK])
    assert loop.time() - begin_ == pytest.approx(PROBE_INTERVAL, abs=0.2)
    for seen in (GONE, BROKEN):
        begin_ = loop.time()
        await probed(server, [seen, seen])
        assert loop.time() - begin_ == pytest.approx(RECOVERY_INTERVAL, abs=0.2)


@pytest.mark.looptime
async def test_the_hubs_own_error_is_no_answer(server: World) -> None:
    server.answered = False
    await probed(server, [502])
    assert server.health.condition is Condition.DOWN


@pytest.mark.looptime
async def test_a_server_that_speaks_to_others_is_up(server: World) -> None:
    """A probe behind a full link waits for its turn."""
    loop = asyncio.get_running_loop()
    health = server.health
    server.start()
    server.says = GONE
    health.heard = loop.time() + 1
    await until(functools.partial(server.was_asked_since, 0), 60)
    assert health.usable
    await until(functools.partial(server.was_asked_since, 1), 60)
    await asyncio.sleep(0)
    assert not health.usable


@pytest.mark.looptime
async def test_a_probe_outlives_whatever_goes_wrong(server: World) -> None:
    """A probe that dies would leave its server as it is for good, and say nothing."""
    await probed(server, [RuntimeError("unforeseen"), GONE])
    assert server.health.condition is Condition.DOWN


def test_a_black_hole_is_noticed_in_time() -> None:
    assert PROBE_INTERVAL + PROBE_TIMEOUT < 6


@pytest.mark.looptime
async def test_recovery_is_told(server: World) -> None:
    beats = beats_of(server.changed)
    server.start()
    server.says = GONE
    await asyncio.sleep(0.5)
    assert (beats(), value_of(metrics.SERVER_UP.labels(str(A)))) == (1, 0)
    server.says = OK
    await asyncio.sleep(3)
    assert (beats(), value_of(metrics.SERVER_UP.labels(str(A)))) == (2, 1)
    assert server.cut == [A]
