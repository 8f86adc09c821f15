"""A profile tells what the process did meanwhile, one at a time, and for no longer than its bound."""

from __future__ import annotations

import asyncio

import pytest

from addons.ui.profile import Profiles
from kube.errors import StatusError


def busy_work() -> int:
    return sum(range(1000))


async def test_what_the_loop_does_meanwhile_is_in_both_tables() -> None:
    taken = asyncio.create_task(Profiles().take("1"))
    while not taken.done():
        busy_work()
        await asyncio.sleep(0.001)
    text = await taken
    assert text.count("busy_work") == 2
    assert "Ordered by: internal time" in text
    assert "Ordered by: cumulative time" in text


async def test_one_is_made_at_a_time() -> None:
    profiles = Profiles()
    first = asyncio.create_task(profiles.take("1"))
    await asyncio.sleep(0)
    with pytest.raises(StatusError, match="is being made"):
        await profiles.take("1")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert "internal time" in await profiles.take("1"), "one that was left leaves the profiler free"


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "x", ""])
async def test_no_other_time_is_taken(seconds: str) -> None:
    with pytest.raises(StatusError, match="seconds is a number from 1 to 60"):
        await Profiles().take(seconds)
