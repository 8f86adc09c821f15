"""A notification wakes the waiting tasks, and no others."""

import asyncio

import pytest

from kube.concurrency.notifier import Notifier, completes_within


async def test_a_notification_wakes_all_current_waiters() -> None:
    notifier = Notifier()
    waiting = [notifier.wait() for _ in range(3)]
    await asyncio.sleep(0)
    notifier.notify()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)
    late = notifier.wait()
    await asyncio.sleep(0)
    assert not late.done()
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late


async def test_a_notification_before_the_first_iteration_is_not_missed() -> None:
    """A task that waits for several notifiers creates a future of each, and awaits them an iteration later."""
    notifier = Notifier()
    waiting = asyncio.ensure_future(notifier.wait())
    notifier.notify()
    await asyncio.wait_for(waiting, 1)


async def test_a_cancelled_waiter_is_removed() -> None:
    notifier = Notifier()
    notifier.wait().cancel()
    await asyncio.sleep(0)
    assert not notifier._waiters


@pytest.mark.looptime
async def test_completes_within_reports_a_timeout() -> None:
    notifier = Notifier()
    assert not await completes_within(3.0, notifier.wait())
    assert asyncio.get_running_loop().time() == 3
    asyncio.get_running_loop().call_later(100.0, notifier.notify)
    assert await completes_within(None, notifier.wait())
