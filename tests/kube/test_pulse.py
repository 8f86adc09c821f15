"""A beat wakes those who wait, and only those."""

import asyncio

import pytest

from kube.pulse import Pulse


async def test_a_beat_wakes_all_who_wait_now() -> None:
    pulse = Pulse()
    waiting = [asyncio.create_task(pulse.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    pulse.beat()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)
    late = asyncio.create_task(pulse.wait())
    await asyncio.sleep(0)
    assert not late.done()
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late


async def test_one_who_gives_up_does_not_disturb_the_others() -> None:
    pulse = Pulse()
    patient, hasty = asyncio.create_task(pulse.wait()), asyncio.create_task(pulse.wait())
    await asyncio.sleep(0)
    hasty.cancel()
    await asyncio.sleep(0)
    pulse.beat()
    await asyncio.wait_for(patient, 1)
    assert hasty.cancelled()
