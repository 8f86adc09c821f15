"""The work queue returns each key once, to one worker at a time, and again after a delay; compared with a model."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.concurrency.workqueue import FIRST_RETRY, LAST_RETRY, Bucket, Queue


async def taken(queue: Queue[str]) -> list[str]:
    """Return all keys that are ready now."""
    keys = []
    while len(queue):
        try:
            async with asyncio.timeout(0.0001):
                keys.append(await queue.get())
        except TimeoutError:
            break
    return keys


@pytest.mark.looptime
async def test_a_key_is_queued_once_in_the_order_of_addition() -> None:
    queue: Queue[str] = Queue()
    for key in "abab":
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


@pytest.mark.looptime
async def test_a_key_added_while_it_is_processed_is_returned_again_afterwards() -> None:
    queue: Queue[str] = Queue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert await taken(queue) == []
    queue.done("a")
    assert await taken(queue) == ["a"]
    queue.done("a")
    assert queue.idle


@pytest.mark.looptime
async def test_a_cancelled_worker_loses_no_key() -> None:
    queue: Queue[str] = Queue()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    queue.add("a")
    assert await taken(queue) == ["a"]


@pytest.mark.looptime
async def test_the_shorter_of_two_delays_applies() -> None:
    loop = asyncio.get_running_loop()
    queue: Queue[str] = Queue()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    assert len(queue) == 0
    assert await queue.get() == "a"
    assert loop.time() == pytest.approx(3)
    queue.done("a")
    assert queue.idle


@pytest.mark.looptime
async def test_adding_a_delayed_key_makes_it_ready() -> None:
    queue: Queue[str] = Queue()
    queue.add_after("a", 10)
    queue.add("a")
    assert await queue.get() == "a"
    queue.done("a")
    queue.add("b")
    queue.add_after("b", 1)
    assert await taken(queue) == ["b"]
    queue.done("b")
    assert queue.idle


@pytest.mark.looptime
async def test_retries_back_off_until_the_key_is_reset() -> None:
    queue: Queue[str] = Queue()
    delays = []
    for _ in range(18):
        delays.append(queue.retry("a"))
        await queue.get()
        queue.done("a")
    assert delays[:4] == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY, 8 * FIRST_RETRY]
    assert delays[-2:] == [LAST_RETRY] * 2
    queue.forget("a")
    assert queue.retry("a") == FIRST_RETRY
    queue.close()


@pytest.mark.looptime
async def test_the_delay_after_a_thousand_failures_is_bounded() -> None:
    queue: Queue[str] = Queue()
    for _ in range(2000):
        queue.retry("a")
    assert not queue.idle
    queue.close()
    assert queue.idle


@pytest.mark.looptime
async def test_a_token_bucket_spreads_requests_beyond_the_burst() -> None:
    bucket = Bucket(rate=10, burst=2)
    assert [round(bucket.reserve(), 6) for _ in range(4)] == [0, 0, 0.1, 0.2]
    await asyncio.sleep(1)
    assert [round(bucket.reserve(), 6) for _ in range(3)] == [0, 0, 0.1]


STEPS = st.lists(st.tuples(st.sampled_from(["add", "get", "done"]), st.sampled_from("abc")), max_size=60)


@given(STEPS)
def test_no_key_is_lost_or_processed_by_two_workers_at_once(steps: list[tuple[str, str]]) -> None:
    async def run() -> None:
        queue: Queue[str] = Queue()
        wanted: set[str] = set()
        working: set[str] = set()
        for step, key in steps:
            if step == "add":
                queue.add(key)
                wanted.add(key)
            elif step == "done" and key in working:
                queue.done(key)
                working.discard(key)
            elif step == "get" and wanted - working:
                got = await queue.get()
                assert got in wanted
                assert got not in working
                wanted.discard(got)
                working.add(got)
            assert len(queue) == len(wanted)

    asyncio.run(run())
