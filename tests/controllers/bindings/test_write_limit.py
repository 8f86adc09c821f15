"""A limit on how many writes begin at once and in a second; on a virtual clock."""

from __future__ import annotations

import asyncio

import pytest

from controllers.bindings.write_limit import WriteLimit


@pytest.mark.looptime
async def test_a_burst_takes_a_seconds_writes() -> None:
    limit = WriteLimit(3)
    assert [round(limit.reserve(), 6) for _ in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    await asyncio.sleep(2.5)
    assert [round(limit.reserve(), 6) for _ in range(3)] == [0, 0, 0.5]
