"""Drills: outages and slow links that an operator simulates, and how each ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from addons.link.drills import DEFAULT_MINUTES, MAX_KBPS, MAX_MINUTES, MAX_MS, DrillKind, Drills
from addons.telemetry import metrics
from tests.addons.support.observed import value_of


class Log:
    """Count the notifications of a changed drill."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def made(log: Log) -> Iterator[Drills]:
    """Return drills with a stopped clock."""
    found = Drills(lambda: 100.0)
    found.on_change.append(log)
    yield found
    found.close()


async def test_an_offline_drill_cuts_the_link_and_restores_it_at_its_end(made: Drills, log: Log) -> None:
    assert (made.is_offline, made.refusal, made.describe()["link"]) == (False, None, "online")
    made.begin(DrillKind.OFFLINE)
    assert made.is_offline
    assert str(made.refusal).startswith("[Errno 111] a drill: the link is offline until ")
    assert (made.describe()["link"], value_of(metrics.DRILL), log.times) == ("offline", 1, 1)
    with pytest.raises(ConnectionResetError, match="a drill"):
        await made.pace(10, is_first=False)
    made.end()
    assert (made.is_offline, made.describe()["link"], value_of(metrics.DRILL), log.times) == (
        *(False, "online"),
        *(0, 2),
    )
    made.end()
    assert log.times == 2, "there was none to end"
    await made.pace(10**9, is_first=True)


@pytest.mark.parametrize(
    ("minutes", "kbps", "ms"),
    [(0, 1, 0), (MAX_MINUTES + 1, 1, 0), (1, 0, 0), (1, MAX_KBPS + 1, 0), (1, 1, -1), (1, 1, MAX_MS + 1)],
)
async def test_a_drill_with_invalid_values_is_refused(made: Drills, minutes: int, kbps: int, ms: int) -> None:
    with pytest.raises(ValueError, match=r"minutes|kbit/s"):
        made.begin(DrillKind.SLOW, minutes, kbps, ms)
    assert made.current is None


@pytest.mark.parametrize(
    ("sizes", "is_first", "seconds"),
    [([1000], False, [1.0]), ([1000], True, [1.5]), ([1000, 500], False, [1.0, 1.5]), ([0], True, [0.5])],
)
async def test_a_slow_link_delays_data_by_its_bandwidth(
    made: Drills, monkeypatch: pytest.MonkeyPatch, sizes: list[int], is_first: bool, seconds: list[float]
) -> None:
    """8 kbit/s and half a second; later bytes queue behind earlier ones."""
    waited: list[float] = []
    timeout = asyncio.timeout

    def soon(delay: float) -> asyncio.Timeout:
        waited.append(delay)
        return timeout(0)

    made.begin(DrillKind.SLOW, kbps=8, ms=500)
    monkeypatch.setattr(asyncio, "timeout", soon)
    for size in sizes:
        await made.pace(size, is_first=is_first)
    assert waited == pytest.approx(seconds)


async def test_the_end_of_a_drill_releases_delayed_data(made: Drills) -> None:
    made.begin(DrillKind.SLOW, kbps=1, ms=MAX_MS)
    waiting = asyncio.create_task(made.pace(10**6, is_first=True))
    await asyncio.sleep(0)
    made.end()
    async with asyncio.timeout(20):
        await waiting


async def test_a_drill_ends_after_its_duration(made: Drills, log: Log) -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    made.begin(DrillKind.OFFLINE)
    assert made._timer is not None
    assert made._timer.when() - before == pytest.approx(60 * DEFAULT_MINUTES, abs=20)
    made._timer._run()
    assert made.current is None
    assert log.times == 2


async def test_a_new_drill_replaces_the_running_one(made: Drills) -> None:
    made.begin(DrillKind.OFFLINE)
    first = made._timer
    made.begin(DrillKind.SLOW, kbps=64, ms=0)
    assert first is not None
    assert first.cancelled()
    assert made.describe().items() >= {"link": "slow", "kbps": 64, "ms": 0}.items()
