"""What becomes of work in the background that fails."""

from __future__ import annotations

import asyncio

import pytest

from addons.telemetry import metrics
from addons.telemetry.background import background
from tests.addons.support.observed import value_of


async def test_work_that_fails_says_so_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no disk")

    failures = metrics.HOOK_ERRORS.labels("edgehub-background", "task")
    before = value_of(failures)
    with pytest.raises(OSError, match="no disk"):
        await background(fail(), "replay of the journal")
    assert "replay of the journal has failed" in caplog.text
    assert value_of(failures) == before + 1


async def test_work_that_is_cancelled_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    task = background(asyncio.sleep(60), "garbage")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert not caplog.text
