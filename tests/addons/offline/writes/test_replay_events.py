"""The replay of events: unchanged, in order and rate-limited; sent, dropped, or delayed behind an earlier event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from addons.offline.writes import replay
from addons.offline.writes.journal_entries import EVENT
from addons.offline.writes.replay import EVENT_PAUSE
from kube.errors import StatusError
from tests.addons.support.devices import Device
from tests.addons.support.observed import until
from tests.addons.support.offline_parts import QueuedAnswers, journal_in
from tests.addons.support.replay_parts import GONE, MAY, OVERLOADED, World, dropped, replayed


@pytest.mark.looptime
async def test_events_are_replayed_one_by_one_in_their_order(replaying: World) -> None:
    before = replayed(EVENT)
    entries = [replaying.put_event("a"), replaying.put_event("a", "PATCH"), replaying.put_event("b")]
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with replaying.running():
        await replaying.until_empty()
    heard = [(each.method, each.path, each.body, each.content_type) for each in replaying.cloud.heard]
    assert heard == [(each.method, each.target, each.body, each.content_type) for each in entries]
    assert loop.time() - began > EVENT_PAUSE * (len(entries) - 1.5)
    assert replayed(EVENT) == before + 3


@pytest.mark.looptime
async def test_an_event_that_already_exists_in_the_cloud_is_dropped(replaying: World) -> None:
    """Its response was lost, or the client sent it to the cloud before the hub journaled it."""
    before = replayed(EVENT), dropped(EVENT, "refused")
    replaying.cloud.says = [StatusError(409, "AlreadyExists", "it is there")]
    replaying.put_event("a")
    async with replaying.running():
        await replaying.until_empty()
    assert (replayed(EVENT) - before[0], dropped(EVENT, "refused") - before[1]) == (1, 0)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [("POST", 403, "refused"), ("POST", 422, "refused"), ("PATCH", 409, "refused"), ("PATCH", 404, "gone")],
)
async def test_an_event_that_the_cloud_refuses_is_dropped_and_the_next_sent(
    replaying: World, method: str, code: int, reason: str
) -> None:
    before = dropped(EVENT, reason)
    replaying.cloud.says = [StatusError(code, "No", "no")]
    if code == 403:
        replaying.cloud.says.append(MAY)
    replaying.put_event("a", method)
    replaying.put_event("b")
    async with replaying.running():
        await replaying.until_empty()
    assert dropped(EVENT, reason) - before == 1
    assert replaying.cloud.heard[-1].document["metadata"]["name"] == "b"


@pytest.mark.looptime
async def test_an_events_patch_waits_for_the_event_itself(replaying: World) -> None:
    """While the event is still pending, the cloud answers its patch 404, which must not drop the count."""
    replaying.cloud.says = [OVERLOADED]
    replaying.put_event("a")
    replaying.put_event("a", "PATCH")
    async with replaying.running():
        await replaying.until_empty()
    assert [method for method, _ in replaying.cloud.lines] == ["POST", "POST", "PATCH"]


@pytest.mark.looptime
@pytest.mark.parametrize("error", [OVERLOADED, StatusError(429, "TooManyRequests", "slow down")])
async def test_patches_of_one_event_are_replayed_in_their_order(replaying: World, error: StatusError) -> None:
    """After a 429, count 2 once overwrote count 4, and the next process found nothing to replay."""
    replaying.cloud.says = [error]
    entries = [replaying.put_event("a", "PATCH") for _ in range(3)]
    other = replaying.put_event("b")
    async with replaying.running():
        await until(lambda: other.sequence not in replaying.journal.events)
        assert replaying.journal.events_of(entries[0].path) == entries
        await replaying.until_empty()
    assert [method for method, _ in replaying.cloud.lines] == ["PATCH", "POST", "PATCH", "PATCH", "PATCH"]


@pytest.mark.parametrize("settles", [False, True])
async def test_a_patch_waits_until_the_previous_one_is_deleted_from_disk(
    tmp_path: Path, settles: bool
) -> None:
    """A hub that was killed between the two once replayed count 2 over count 3."""

    @asynccontextmanager
    async def settling(replaying: World, path: str) -> AsyncIterator[None]:
        task = asyncio.create_task(replaying.replay.flush(path))
        yield
        await task

    device = Device(tmp_path)
    async with journal_in(tmp_path, device) as journal:
        replaying = World(journal)
        first, second = (replaying.put_event("a", "PATCH") for _ in range(2))
        await until(lambda: not journal.describe()["unwritten"])
        device.goes_on.clear()
        async with replaying.running() if not settles else settling(replaying, first.path):
            await until(lambda: replaying.cloud.heard)
            await asyncio.sleep(2 * EVENT_PAUSE)
            assert (len(replaying.cloud.heard), journal.events_of(first.path)) == (1, [second])
            device.goes_on.set()
            await replaying.until_empty()


async def test_flushing_an_event_sends_its_entries_in_order(replaying: World) -> None:
    first, second = replaying.put_event("a"), replaying.put_event("a", "PATCH")
    other = replaying.put_event("b", "PATCH")
    await replaying.replay.flush(first.path)
    assert [(each.method, each.path) for each in replaying.cloud.heard] == [
        ("POST", first.target),
        ("PATCH", second.target),
    ]
    assert list(replaying.journal.events.values()) == [other]


@pytest.mark.looptime
async def test_an_events_patch_does_not_wait_for_another_event(replaying: World) -> None:
    """A creation that the cloud always answers with 5xx once held up the patches of all other events."""
    before = dropped(EVENT, "gone")
    replaying.cloud.says = [OVERLOADED, GONE]
    replaying.put_event("a")
    replaying.put_event("b", "PATCH")
    async with replaying.running():
        await until(lambda: len(replaying.journal.events) == 1)
    assert dropped(EVENT, "gone") - before == 1


@pytest.mark.looptime
async def test_the_replay_of_events_pauses_offline_and_resumes(replaying: World) -> None:
    entries = [replaying.put_event(name) for name in "abc"]
    async with replaying.running():
        await until(lambda: replaying.cloud.heard)
        replaying.is_up = False
        await asyncio.sleep(60)
        assert len(replaying.cloud.heard) == 1
        replaying.is_up = True
        replaying.changed.notify()
        await replaying.until_empty()
    assert [each.body for each in replaying.cloud.heard] == [each.body for each in entries]


@pytest.mark.looptime
async def test_a_users_event_is_replayed_only_with_a_token_of_that_user(
    replaying: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never sent with the node's identity, even if the user never returns."""
    monkeypatch.setattr(replay, "CALLER_TIMEOUT", 20.0)
    of_user = QueuedAnswers()
    waiting = replaying.put_event("a", user="kube-proxy")
    lost = replaying.put_event("b", user="a pod that is gone")
    replaying.put_event("c")
    before = dropped(EVENT, "refused")
    async with replaying.running():
        await until(lambda: len(replaying.journal.events) == 2)
        assert [each.document["metadata"]["name"] for each in replaying.cloud.heard] == ["c"]
        replaying.clients["kube-proxy"] = of_user
        await until(lambda: waiting.sequence not in replaying.journal.events, 300)
        await until(lambda: lost.sequence not in replaying.journal.events, 300)
    assert [each.document["metadata"]["name"] for each in of_user.heard] == ["a"]
    assert len(replaying.cloud.heard) == 1
    assert dropped(EVENT, "refused") == before + 1


@pytest.mark.looptime
@pytest.mark.parametrize(("code", "is_dropped"), [(403, True), (422, True), (401, False), (503, False)])
async def test_an_event_that_the_cloud_forbids_its_user_is_dropped(
    replaying: World, code: int, is_dropped: bool
) -> None:
    of_user = QueuedAnswers()
    of_user.says = [StatusError(code, "No", "no")]
    replaying.clients["kube-proxy"] = of_user
    replaying.put_event("a", user="kube-proxy")
    before = dropped(EVENT, "refused")
    async with replaying.running():
        await replaying.until_empty()
    assert len(of_user.heard) == (1 if is_dropped else 2)
    assert dropped(EVENT, "refused") - before == is_dropped
    assert not replaying.cloud.heard
