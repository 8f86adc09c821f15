"""The replay of journaled statuses: which are sent, retried or dropped, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from addons.offline.writes.journal_entries import EVENT, STATUS, StatusEntry
from addons.offline.writes.replay import MAX_CONFLICTS, RetryLater
from kube.concurrency.backoff import FIRST_DELAY
from kube.errors import StatusError, too_many_requests
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from tests.addons.support.hub_world import HUB_TOKEN
from tests.addons.support.observed import until
from tests.addons.support.offline_parts import STRATEGIC, journal_in
from tests.addons.support.replay_parts import (
    CONFLICT,
    EXPIRED,
    FORBIDDEN,
    GONE,
    MAY,
    MAY_NOT,
    OVERLOADED,
    World,
    conditions,
    dropped,
    replayed,
)
from tests.addons.support.samples import node
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.sessions import new_session

# -- statuses ------------------------------------------------------------------------------------------------------


async def test_a_status_is_replayed_as_its_difference_with_the_uid(replaying: World) -> None:
    before = replayed(STATUS)
    replaying.put(Ready="False")
    async with replaying.running():
        await replaying.until_empty()
    (heard,) = replaying.cloud.heard
    assert (heard.method, heard.path, heard.content_type) == ("PATCH", "/api/v1/nodes/n1/status", STRATEGIC)
    assert heard.document["metadata"] == {"uid": "u"}
    changed = heard.document["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in changed if "status" in each] == [("Ready", "False")]
    assert replayed(STATUS) == before + 1


async def test_a_replayed_status_preserves_conditions_of_other_writers(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    made = cloud.store.create({**node("n1"), "status": {"conditions": conditions(Ready="True")}})
    theirs = {**made, "status": {"conditions": conditions(Ready="True", Theirs="True")}}
    cloud.store.update(theirs, subresource="status")
    session = new_session()
    client = Client(session, cloud.url, {"Authorization": f"Bearer {HUB_TOKEN}"})
    async with journal_in(tmp_path) as journal:
        replaying = World(journal, client)
        after = {**made, "status": {"conditions": conditions(Ready="False")}}
        uid = made["metadata"]["uid"]
        journal.put_status(StatusEntry("/api/v1/nodes/n1", "Node", uid, made, after))
        journal.put_status(StatusEntry("/api/v1/nodes/gone", "Node", uid, made, after))
        gone = dropped(STATUS, "gone")
        async with replaying.running():
            await replaying.until_empty()
        assert dropped(STATUS, "gone") == gone + 1
        assert not replaying.taken_back
    await session.close()
    taken = cloud.store.get("nodes", "n1")
    found, version = taken["status"]["conditions"], int(taken["metadata"]["resourceVersion"])
    assert replaying.ended == [("/api/v1/nodes/n1", version), ("/api/v1/nodes/gone", 0)]
    assert {each["type"]: each["status"] for each in found} == {"Ready": "False", "Theirs": "True"}


async def test_a_conflict_with_another_clients_write_is_retried(replaying: World) -> None:
    mine: Json = {"metadata": {"uid": "u"}}
    replaying.cloud.says = [CONFLICT, mine, CONFLICT, mine, {}]
    replaying.put(Ready="False")
    async with replaying.running():
        await replaying.until_empty()
    assert [method for method, _ in replaying.cloud.lines] == ["PATCH", "GET", "PATCH", "GET", "PATCH"]
    assert not replaying.taken_back


@pytest.mark.parametrize("found", [{"metadata": {"uid": "another"}}, GONE])
async def test_a_recreated_object_never_gets_the_old_ones_status(
    replaying: World, found: Json | StatusError
) -> None:
    before = dropped(STATUS, "gone")
    replaying.cloud.says = [CONFLICT, found]
    replaying.put(Ready="False")
    async with replaying.running():
        await replaying.until_empty()
    assert len(replaying.cloud.heard) == 2
    assert dropped(STATUS, "gone") == before + 1
    assert not replaying.taken_back, "the watch tells of the new one"


@pytest.mark.looptime
async def test_repeated_conflicts_are_retried_later(replaying: World) -> None:
    replaying.cloud.says = [CONFLICT, {"metadata": {"uid": "u"}}] * MAX_CONFLICTS
    replaying.put(Ready="False")
    began = asyncio.get_running_loop().time()
    async with replaying.running():
        await replaying.until_empty()
    assert len(replaying.cloud.heard) == 2 * MAX_CONFLICTS + 1
    assert asyncio.get_running_loop().time() - began >= FIRST_DELAY


@pytest.mark.parametrize("code", [400, 403, 413, 415, 422])
async def test_a_status_that_the_cloud_refuses_is_dropped_and_reverted(replaying: World, code: int) -> None:
    before = dropped(STATUS, "refused")
    replaying.cloud.says = [StatusError(code, "Invalid", "no")]
    if code == 422:  # 422 may also mean another uid, so the object is read
        replaying.cloud.says.append({"metadata": {"uid": "u"}})
    if code == 403:  # the hub has the permission: an admission plugin refused this one write
        replaying.cloud.says.append(MAY)
    entry, other = replaying.put(Ready="False"), replaying.put("n2", Ready="False")
    async with replaying.running():
        await replaying.until_empty()
    assert (dropped(STATUS, "refused") - before, replaying.taken_back) == (1, [entry])
    assert replaying.cloud.heard[-1].path == f"{other.path}/status"


@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        StatusError(500, "InternalError", "etcd"),
        OVERLOADED,
        StatusError(504, "Timeout", "slow"),
        StatusError(429, "TooManyRequests", "slow down"),
        Unreachable("no route"),
    ],
)
async def test_a_temporary_error_delays_each_retry_longer(replaying: World, error: Exception) -> None:
    loop = asyncio.get_running_loop()
    replaying.cloud.says = [error] * 4
    replaying.put(Ready="False")
    began = loop.time()
    async with replaying.running():
        await replaying.until_empty()
    assert len(replaying.cloud.heard) == 5
    # Four delays that double, each with a jitter of up to its own length.
    assert FIRST_DELAY * 15 <= loop.time() - began <= FIRST_DELAY * 30 + 1
    assert not replaying.taken_back


@pytest.mark.looptime
async def test_retry_after_pauses_the_replay(replaying: World) -> None:
    """A cloud that requested 30 s once got 250 entries in 20 s."""
    replaying.cloud.says = [too_many_requests("slow down", retry_after=30)]
    replaying.put("n1", Ready="False")
    replaying.put("n2", Ready="False")
    replaying.put_event("e")
    async with replaying.running():
        await asyncio.sleep(29)
        assert len(replaying.cloud.heard) == 1
        await replaying.until_empty()


CANNOT_SAY: list[Json | Exception] = [OVERLOADED, Unreachable("no route"), {}, {"metadata": {}}]


@pytest.mark.looptime
@pytest.mark.parametrize("says", [[OVERLOADED], *([CONFLICT, each] for each in CANNOT_SAY)])
async def test_flushing_fails_at_once_if_the_cloud_cannot_decide(
    replaying: World, says: list[Json | Exception]
) -> None:
    replaying.cloud.says = list(says)
    entry = replaying.put(Ready="False")
    with pytest.raises(RetryLater):
        await replaying.replay.flush(entry.path)
    assert list(replaying.journal.statuses.values()) == [entry]


@pytest.mark.looptime
async def test_a_delayed_entry_does_not_delay_the_rest(replaying: World) -> None:
    replaying.cloud.says = [OVERLOADED]
    waits = replaying.put("n1", Ready="False")
    replaying.put("n2", Ready="False")
    event = replaying.put_event("e")
    async with replaying.running():
        await until(lambda: not replaying.journal.events)
        assert list(replaying.journal.statuses.values()) == [waits]
        await replaying.until_empty()
    paths = [each.path for each in replaying.cloud.heard]
    assert paths == [f"{waits.path}/status", "/api/v1/nodes/n2/status", event.target, f"{waits.path}/status"]


@pytest.mark.looptime
async def test_the_replay_continues_after_an_unexpected_error(replaying: World) -> None:
    """If the task ended, the journal would wait for the next start."""
    replaying.fails = RuntimeError("unforeseen")
    replaying.cloud.says = [StatusError(400, "BadRequest", "no")]
    first, second = replaying.put("n1", Ready="False"), replaying.put("n2", Ready="False")
    async with replaying.running():
        await replaying.until_empty()
    paths = [each.path.removesuffix("/status") for each in replaying.cloud.heard]
    assert paths == [first.path, second.path, first.path]


@pytest.mark.looptime
async def test_a_status_that_the_cloud_has_already_is_reverted_before_it_is_dropped(
    replaying: World,
) -> None:
    """No event follows it: after a kill the copy would retain the local state for ever."""
    replaying.fails = Unreachable("gone again")
    replaying.cloud.usual = node("n1", 7)
    entry = replaying.put(version="7", Ready="False")
    replaying.put("n2", version="6", Ready="False")
    async with replaying.running():
        await until(lambda: bool(replaying.taken_back))
        assert replaying.journal.statuses[entry.path] == entry
        replaying.fails = None
        await replaying.until_empty()
    assert replaying.taken_back == [entry, entry]


async def test_an_entry_added_while_one_is_sent_is_sent_after_it(replaying: World) -> None:
    first = replaying.put(Ready="False")
    newer: list[StatusEntry] = []
    send = replaying.cloud.request

    async def sent_meanwhile(method: str, path: str, **how: object) -> object:
        if not newer:
            newer.append(replaying.put(Ready="Unknown"))
        return await send(method, path, **how)  # type: ignore[arg-type]  # passed on as it came

    vars(replaying.cloud)["request"] = sent_meanwhile
    await replaying.replay.flush(first.path)
    assert list(replaying.journal.statuses.values()) == newer
    await replaying.replay.flush(first.path)
    assert not replaying.journal.statuses
    sent = [each.document["status"]["conditions"][0]["status"] for each in replaying.cloud.heard]
    assert sent == ["False", "Unknown"]


async def test_a_status_with_a_lost_response_is_overwritten_when_the_former_status_returns(
    replaying: World,
) -> None:
    """The cloud had applied the lost one; the former status equals its base, so an empty patch left the lost one in
    place."""
    replaying.cloud.says = [Unreachable("the answer was lost")]
    entry = replaying.put(Ready="False")
    with pytest.raises(RetryLater):
        await replaying.replay.flush(entry.path)
    replaying.put()
    await replaying.replay.flush(entry.path)
    assert replaying.cloud.heard[-1].document["status"] == {"conditions": conditions(Ready="True")}


# -- credentials that the cloud does not accept --------------------------------------------------------------------


@pytest.mark.looptime
@pytest.mark.parametrize("answers", [[EXPIRED], [FORBIDDEN, EXPIRED], [FORBIDDEN, FORBIDDEN]])
async def test_the_journal_outlives_expired_credentials(
    replaying: World, answers: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """20 events and a status were once discarded after an outage that was longer than the validity of the node's
    certificate."""
    before = dropped(STATUS, "refused"), dropped(EVENT, "refused")
    replaying.put(Ready="False")
    for name in "abc":
        replaying.put_event(name)
    replaying.cloud.says = [*answers] * 20
    async with replaying.running():
        await asyncio.sleep(30)
        assert (len(replaying.journal.statuses), len(replaying.journal.events)) == (1, 3)
        sent = {path for method, path in replaying.cloud.lines if method == "PATCH"}
        assert sent == {"/api/v1/nodes/n1/status"}, "the first refusal stops the turn"
        replaying.cloud.says = []
        await replaying.until_empty()
    assert (dropped(STATUS, "refused"), dropped(EVENT, "refused")) == before
    assert not replaying.taken_back
    assert caplog.text.count("waits for credentials") == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    "answers", [[FORBIDDEN, MAY_NOT], [FORBIDDEN, OVERLOADED], [FORBIDDEN, Unreachable("gone")]]
)
async def test_a_missing_permission_delays_its_entry_alone(
    replaying: World, answers: list[Json | Exception]
) -> None:
    waits, other = replaying.put("n1", Ready="False"), replaying.put("n2", Ready="False")
    replaying.cloud.says = list(answers)
    async with replaying.running():
        await until(lambda: other.path not in replaying.journal.statuses)
        assert list(replaying.journal.statuses.values()) == [waits]
        await replaying.until_empty()
    assert not replaying.taken_back


# -- flushing one object -------------------------------------------------------------------------------------------


async def test_flushing_an_object_sends_its_entry_alone(replaying: World) -> None:
    entry, other = replaying.put("n1", Ready="False"), replaying.put("n2", Ready="False")
    await replaying.replay.flush(entry.path)
    await replaying.replay.flush(entry.path)
    assert replaying.cloud.lines == [("PATCH", f"{entry.path}/status")]
    assert list(replaying.journal.statuses.values()) == [other]


async def test_flushing_does_not_send_an_entry_twice(replaying: World) -> None:
    entry = replaying.put(Ready="False")
    await asyncio.gather(replaying.replay.flush(entry.path), replaying.replay.flush(entry.path))
    assert len(replaying.cloud.heard) == 1


# -- the time of a replay ------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_without_a_cloud_nothing_is_sent(replaying: World) -> None:
    replaying.is_up = False
    replaying.put(Ready="False")
    async with replaying.running():
        await asyncio.sleep(60)
        assert not replaying.cloud.heard
        replaying.is_up = True
        replaying.changed.notify()
        await until(lambda: replaying.cloud.heard)


@pytest.mark.looptime
async def test_an_entry_added_while_the_cloud_is_up_is_sent(replaying: World) -> None:
    async with replaying.running():
        await asyncio.sleep(60)
        replaying.put(Ready="False")
        await replaying.until_empty()
    assert len(replaying.cloud.heard) == 1


async def test_an_entry_added_as_the_replay_begins_to_wait_is_sent(replaying: World) -> None:
    async def put() -> None:
        replaying.put(Ready="False")

    async with replaying.running():
        # Runs in the same iteration of the loop as the replay's first look at the empty journal.
        await asyncio.create_task(put())
        await until(lambda: replaying.cloud.heard)
    assert [heard.method for heard in replaying.cloud.heard] == ["PATCH"]
