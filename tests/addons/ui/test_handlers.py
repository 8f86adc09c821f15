"""Long reports run one after the other, and too many are refused."""

from __future__ import annotations

import asyncio

import pytest

from addons.telemetry import metrics
from addons.ui.handlers import MAX_WAITING, ReportQueue
from kube.errors import StatusError


async def test_one_after_the_other() -> None:
    reports, running, most = ReportQueue(), 0, 0

    async def report() -> None:
        nonlocal running, most
        async with reports.take():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(report() for _ in range(5)))
    assert most == 1


async def test_too_many_are_refused_and_it_goes_on_afterwards() -> None:
    reports, go_on = ReportQueue(), asyncio.Event()
    before = metrics.ADMIN_REFUSED.labels("turn")._value.get()

    async def report() -> None:
        async with reports.take():
            await go_on.wait()

    tasks = [asyncio.create_task(report()) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(StatusError) as caught:
        async with reports.take():
            pass
    assert (caught.value.code, caught.value.retry_after) == (429, 1)
    assert metrics.ADMIN_REFUSED.labels("turn")._value.get() == before + 1
    tasks[-1].cancel()
    go_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with reports.take():
        pass
