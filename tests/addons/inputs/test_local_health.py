"""The local health source, on a small server: which answers count, and when the last one expires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from addons.inputs.local_health import MAX_REPORT, ROUNDS_KEPT, LocalHealthSource, parse_health
from addons.telemetry.metrics import LOCAL_HEALTH_FAILURES, LOCAL_HEALTH_UNHEALTHY, LOCAL_HEALTH_UP
from tests.cloud.ports import LOOPBACK
from tests.support.background import beside

INTERVAL = 0.05


@pytest.mark.parametrize(
    ("body", "unhealthy"),
    [
        (b"{}", set()),
        (b'{"n1":{"normal":true,"time":"x"},"n2":{"normal":false,"hmac":""}}', {"n2"}),
        (b'{"10.0.0.7":{"normal":false}}', {"10.0.0.7"}),
    ],
)
def test_what_it_says(body: bytes, unhealthy: set[str]) -> None:
    assert parse_health(body) == unhealthy


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"n1":false}', b'{"n1":{}}', b'{"n1":{"normal":"no"}}', b"\xff"]
)
def test_what_says_nothing(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_health(body)


class HealthServer:
    """Says `body`, or fails while that is empty. `told` is what the hub made of it, in order."""

    def __init__(self) -> None:
        self.body = b'{"n2":{"normal":false}}'
        self.asked = 0
        self.came = asyncio.Event()
        self.told: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        self.url = ""

    async def answer(self, _request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        self.came.set()
        return web.Response(body=self.body) if self.body else web.Response(status=500)


@pytest.fixture
async def health() -> AsyncIterator[HealthServer]:
    made = HealthServer()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    made.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/localinfo"
    source = LocalHealthSource(made.url, INTERVAL, made.told.put_nowait)
    async with beside(source.run()):
        yield made
    await runner.cleanup()


async def test_its_last_word_outlives_a_failure_and_then_ends(health: HealthServer) -> None:
    assert await health.told.get() == {"n2"}
    assert LOCAL_HEALTH_UP._value.get() == LOCAL_HEALTH_UNHEALTHY._value.get() == 1
    failures = LOCAL_HEALTH_FAILURES._value.get()
    loop = asyncio.get_running_loop()
    health.body, began = b"", loop.time()
    assert await health.told.get() == frozenset()
    # From the last answer on, which was one interval before the first failure at most.
    assert loop.time() - began > (ROUNDS_KEPT - 1.5) * INTERVAL
    assert LOCAL_HEALTH_FAILURES._value.get() - failures >= 2
    assert LOCAL_HEALTH_UP._value.get() == 0
    health.body = b'{"n3":{"normal":false}}'
    assert await health.told.get() == {"n3"}


async def test_the_same_word_is_told_once(health: HealthServer) -> None:
    assert await health.told.get() == {"n2"}
    seen = health.asked
    for _ in range(3):
        health.came.clear()
        await health.came.wait()
    assert health.asked >= seen + 3
    assert health.told.empty()


async def test_an_answer_beyond_the_bound_is_a_failure(health: HealthServer) -> None:
    assert await health.told.get() == {"n2"}
    failures = LOCAL_HEALTH_FAILURES._value.get()
    health.body = b'{"n3":{"normal":false,"time":"' + b"x" * MAX_REPORT + b'"}}'
    assert await health.told.get() == frozenset()
    assert LOCAL_HEALTH_FAILURES._value.get() > failures
