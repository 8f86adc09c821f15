"""A notification wakes the tasks that wait, and no others."""

import asyncio

import pytest

from kube.concurrency.pulse import Pulse, comes_within


async def test_a_beat_wakes_all_who_wait_now() -> None:
    pulse = Pulse()
    waiting = [pulse.wait() for _ in range(3)]
    await asyncio.sleep(0)
    pulse.notify()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)
    late = pulse.wait()
    await asyncio.sleep(0)
    assert not late.done()
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late


async def test_a_beat_in_the_same_turn_is_not_missed() -> None:
    """A task that waits for several pulses makes a future of each, and awaits them a turn later."""
    pulse = Pulse()
    waiting = asyncio.ensure_future(pulse.wait())
    pulse.notify()
    await asyncio.wait_for(waiting, 1)


async def test_who_has_left_is_forgotten() -> None:
    pulse = Pulse()
    pulse.wait().cancel()
    await asyncio.sleep(0)
    assert not pulse._waiters


@pytest.mark.looptime
async def test_what_is_waited_for_comes_or_does_not() -> None:
    pulse = Pulse()
    assert not await comes_within(3.0, pulse.wait())
    assert asyncio.get_running_loop().time() == 3
    asyncio.get_running_loop().call_later(100.0, pulse.notify)
    assert await comes_within(None, pulse.wait())
