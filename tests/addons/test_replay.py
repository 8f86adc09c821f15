"""The journal on its way to the cloud: what is sent, what is tried again, what is given up, in which order and pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from addons import metrics
from addons.journal import EVENT, STATUS, EventEntry, Journal, StatusEntry
from addons.replay import CONFLICTS, EVENT_PAUSE, Later, Replay
from kube.backoff import FIRST
from kube.client import Client, Unreachable, new_session
from kube.pulse import Pulse
from kube.status import StatusError
from tests.addons.hub_parts import HUB_TOKEN
from tests.addons.observed import until, value_of
from tests.addons.offline_parts import STRATEGIC, Told, journal_in
from tests.addons.samples import Json, node
from tests.cloud.scriptable import ScriptableCloud

EVENTS = "/api/v1/namespaces/default/events"
CONFLICT = StatusError(409, "Conflict", "somebody else wrote it")
GONE = StatusError(404, "NotFound", "not there")
OVERLOADED = StatusError(503, "ServiceUnavailable", "later")


class World:
    """A replay, what it is told of the cloud, and what it tells of refusals."""

    def __init__(self, journal: Journal, client: Client) -> None:
        self.journal = journal
        self.is_up = True
        self.changed = Pulse()
        self.refused: list[StatusEntry] = []
        self.fails: Exception | None = None
        self.replay = Replay(journal, client, lambda: self.is_up, self.changed, self._refuse)

    async def _refuse(self, entry: StatusEntry) -> None:
        self.refused.append(entry)
        if self.fails is not None:
            raise self.fails

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.replay.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_empty(self) -> None:
        await until(lambda: not self.journal.statuses and not self.journal.events, 300)

    def put(self, name: str = "n1", uid: str = "u", **changed: str) -> StatusEntry:
        """A status in which these conditions have become so."""
        metadata = {"name": name, "uid": uid}
        before: Json = {"metadata": metadata, "status": {"conditions": conditions(Same="True", Ready="True")}}
        after: Json = {
            "metadata": metadata,
            "status": {"conditions": conditions(**{"Same": "True", "Ready": "True", **changed})},
        }
        return self.journal.put_status(StatusEntry(f"/api/v1/nodes/{name}", "Node", uid, before, after))

    def put_event(self, name: str, method: str = "POST") -> EventEntry:
        target = EVENTS if method == "POST" else f"{EVENTS}/{name}"
        return self.journal.put_event(method, target, "application/json", name.encode())


def conditions(**states: str) -> list[Json]:
    return [{"type": kind, "status": state} for kind, state in states.items()]


@pytest.fixture
def cloud_says() -> Told:
    return Told()


@pytest.fixture
async def world(tmp_path: Path, cloud_says: Told) -> AsyncIterator[World]:
    async with journal_in(tmp_path) as journal:
        yield World(journal, cloud_says)


def dropped(kind: str, reason: str) -> float:
    return value_of(metrics.JOURNAL_DROPPED.labels(kind, reason))


def replayed(kind: str) -> float:
    return value_of(metrics.JOURNAL_REPLAYED.labels(kind))


# -- statuses ------------------------------------------------------------------------------------------------------


async def test_a_status_goes_as_what_changed_of_the_object_that_was_meant(
    world: World, cloud_says: Told
) -> None:
    before = replayed(STATUS)
    world.put(Ready="False")
    async with world.running():
        await world.until_empty()
    (heard,) = cloud_says.heard
    assert (heard.method, heard.path, heard.content_type) == ("PATCH", "/api/v1/nodes/n1/status", STRATEGIC)
    assert heard.document["metadata"] == {"uid": "u"}
    changed = heard.document["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in changed if "status" in each] == [("Ready", "False")]
    assert replayed(STATUS) == before + 1


async def test_a_real_object_keeps_what_others_wrote(tmp_path: Path, cloud: ScriptableCloud) -> None:
    made = cloud.store.create({**node("n1"), "status": {"conditions": conditions(Ready="True")}})
    theirs = {**made, "status": {"conditions": conditions(Ready="True", Theirs="True")}}
    cloud.store.update(theirs, subresource="status")
    session = new_session()
    client = Client(session, cloud.url, {"Authorization": f"Bearer {HUB_TOKEN}"})
    async with journal_in(tmp_path) as journal:
        world = World(journal, client)
        after = {**made, "status": {"conditions": conditions(Ready="False")}}
        uid = made["metadata"]["uid"]
        journal.put_status(StatusEntry("/api/v1/nodes/n1", "Node", uid, made, after))
        journal.put_status(StatusEntry("/api/v1/nodes/gone", "Node", uid, made, after))
        gone = dropped(STATUS, "gone")
        async with world.running():
            await world.until_empty()
        assert dropped(STATUS, "gone") == gone + 1
        assert not world.refused
    await session.close()
    found = cloud.store.get("nodes", "n1")["status"]["conditions"]
    assert {each["type"]: each["status"] for each in found} == {"Ready": "False", "Theirs": "True"}


async def test_somebody_elses_write_between_is_no_reason_to_give_up(world: World, cloud_says: Told) -> None:
    mine: Json = {"metadata": {"uid": "u"}}
    cloud_says.says = [CONFLICT, mine, CONFLICT, mine, {}]
    world.put(Ready="False")
    async with world.running():
        await world.until_empty()
    assert [method for method, _ in cloud_says.lines] == ["PATCH", "GET", "PATCH", "GET", "PATCH"]
    assert not world.refused


@pytest.mark.parametrize("found", [{"metadata": {"uid": "another"}}, GONE])
async def test_another_object_of_that_name_never_gets_the_status(
    world: World, cloud_says: Told, found: Json | StatusError
) -> None:
    before = dropped(STATUS, "gone")
    cloud_says.says = [CONFLICT, found]
    world.put(Ready="False")
    async with world.running():
        await world.until_empty()
    assert len(cloud_says.heard) == 2
    assert dropped(STATUS, "gone") == before + 1
    assert not world.refused, "the watch tells of the new one"


@pytest.mark.looptime
async def test_conflicts_without_end_are_tried_again_later(world: World, cloud_says: Told) -> None:
    cloud_says.says = [CONFLICT, {"metadata": {"uid": "u"}}] * CONFLICTS
    world.put(Ready="False")
    began = asyncio.get_running_loop().time()
    async with world.running():
        await world.until_empty()
    assert len(cloud_says.heard) == 2 * CONFLICTS + 1
    assert asyncio.get_running_loop().time() - began >= FIRST


async def test_a_status_of_an_object_that_is_gone_is_dropped(world: World, cloud_says: Told) -> None:
    before = dropped(STATUS, "gone")
    cloud_says.says = [GONE]
    world.put(Ready="False")
    async with world.running():
        await world.until_empty()
    assert (dropped(STATUS, "gone") - before, world.refused) == (1, [])


@pytest.mark.parametrize("code", [400, 403, 413, 415, 422])
async def test_a_status_that_the_cloud_refuses_is_dropped_and_told(
    world: World, cloud_says: Told, code: int
) -> None:
    before = dropped(STATUS, "refused")
    cloud_says.says = [StatusError(code, "Invalid", "no")]
    entry, other = world.put(Ready="False"), world.put("n2", Ready="False")
    async with world.running():
        await world.until_empty()
    assert (dropped(STATUS, "refused") - before, world.refused) == (1, [entry])
    assert cloud_says.heard[-1].path == f"{other.path}/status"


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
async def test_what_the_cloud_could_not_take_now_waits_longer_each_time(
    world: World, cloud_says: Told, error: Exception
) -> None:
    loop = asyncio.get_running_loop()
    cloud_says.says = [error] * 4
    world.put(Ready="False")
    began = loop.time()
    async with world.running():
        await world.until_empty()
    assert len(cloud_says.heard) == 5
    # Four delays that double, each with a jitter of up to its own length.
    assert FIRST * 15 <= loop.time() - began <= FIRST * 30 + 1
    assert not world.refused


@pytest.mark.looptime
@pytest.mark.parametrize("answer", [OVERLOADED, Unreachable("no route"), {}, {"metadata": {}}])
async def test_who_cannot_be_asked_whose_object_it_is_is_asked_later(
    world: World, cloud_says: Told, answer: Json | Exception
) -> None:
    cloud_says.says = [CONFLICT, answer]
    entry = world.put(Ready="False")
    with pytest.raises(Later):
        await world.replay.settle(entry.path)
    assert list(world.journal.statuses.values()) == [entry]


@pytest.mark.looptime
async def test_one_that_must_wait_does_not_hold_up_the_others(world: World, cloud_says: Told) -> None:
    cloud_says.says = [OVERLOADED]
    waits = world.put("n1", Ready="False")
    world.put("n2", Ready="False")
    event = world.put_event("e")
    async with world.running():
        await until(lambda: not world.journal.events)
        assert list(world.journal.statuses.values()) == [waits]
        await world.until_empty()
    paths = [each.path for each in cloud_says.heard]
    assert paths == [f"{waits.path}/status", "/api/v1/nodes/n2/status", event.target, f"{waits.path}/status"]


@pytest.mark.looptime
async def test_whatever_goes_wrong_with_one_the_replay_goes_on(world: World, cloud_says: Told) -> None:
    """Were it to end, nothing of the journal would reach the cloud until the next start."""
    world.fails = RuntimeError("unforeseen")
    cloud_says.says = [StatusError(403, "Forbidden", "no")]
    world.put("n1", Ready="False")
    world.put("n2", Ready="False")
    async with world.running():
        await world.until_empty()
    assert len(cloud_says.heard) == 2


async def test_what_comes_while_it_is_sent_is_sent_after_it(world: World, cloud_says: Told) -> None:
    first = world.put(Ready="False")
    newer: list[StatusEntry] = []
    send = cloud_says.request

    async def sent_meanwhile(method: str, path: str, **how: object) -> object:
        if not newer:
            newer.append(world.put(Ready="Unknown"))
        return await send(method, path, **how)  # type: ignore[arg-type]  # passed on as it came

    vars(cloud_says)["request"] = sent_meanwhile
    await world.replay.settle(first.path)
    assert list(world.journal.statuses.values()) == newer
    await world.replay.settle(first.path)
    assert not world.journal.statuses
    sent = [each.document["status"]["conditions"][0]["status"] for each in cloud_says.heard]
    assert sent == ["False", "Unknown"]


# -- one object now ------------------------------------------------------------------------------------------------


async def test_settling_brings_one_object_and_no_other(world: World, cloud_says: Told) -> None:
    entry, other = world.put("n1", Ready="False"), world.put("n2", Ready="False")
    await world.replay.settle(entry.path)
    await world.replay.settle(entry.path)
    assert cloud_says.lines == [("PATCH", f"{entry.path}/status")]
    assert list(world.journal.statuses.values()) == [other]


async def test_settling_does_not_send_what_is_being_sent(world: World, cloud_says: Told) -> None:
    entry = world.put(Ready="False")
    await asyncio.gather(world.replay.settle(entry.path), world.replay.settle(entry.path))
    assert len(cloud_says.heard) == 1


async def test_settling_gives_up_at_once_when_the_cloud_does(world: World, cloud_says: Told) -> None:
    cloud_says.says = [OVERLOADED]
    entry = world.put(Ready="False")
    with pytest.raises(Later):
        await world.replay.settle(entry.path)
    assert list(world.journal.statuses.values()) == [entry]


# -- events --------------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_events_go_as_they_came_one_after_the_other(world: World, cloud_says: Told) -> None:
    before = replayed(EVENT)
    entries = [world.put_event("a"), world.put_event("a", "PATCH"), world.put_event("b")]
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with world.running():
        await world.until_empty()
    heard = [(each.method, each.path, each.body, each.content_type) for each in cloud_says.heard]
    assert heard == [(each.method, each.target, each.body, each.content_type) for each in entries]
    assert loop.time() - began > EVENT_PAUSE * (len(entries) - 1.5)
    assert replayed(EVENT) == before + 3


@pytest.mark.looptime
async def test_an_event_that_the_cloud_has_already_is_done(world: World, cloud_says: Told) -> None:
    """The answer was lost, or the event was sent before it was taken here."""
    before = replayed(EVENT), dropped(EVENT, "refused")
    cloud_says.says = [StatusError(409, "AlreadyExists", "it is there")]
    world.put_event("a")
    async with world.running():
        await world.until_empty()
    assert (replayed(EVENT) - before[0], dropped(EVENT, "refused") - before[1]) == (1, 0)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [("POST", 403, "refused"), ("POST", 422, "refused"), ("PATCH", 409, "refused"), ("PATCH", 404, "gone")],
)
async def test_an_event_that_the_cloud_refuses_is_dropped_and_the_next_goes(
    world: World, cloud_says: Told, method: str, code: int, reason: str
) -> None:
    before = dropped(EVENT, reason)
    cloud_says.says = [StatusError(code, "No", "no")]
    world.put_event("a", method)
    world.put_event("b")
    async with world.running():
        await world.until_empty()
    assert (dropped(EVENT, reason) - before, len(cloud_says.heard)) == (1, 2)


@pytest.mark.looptime
async def test_an_events_patch_waits_for_the_event_itself(world: World, cloud_says: Told) -> None:
    """The cloud does not know an event that it could not take yet: its count must not be lost for that."""
    before = dropped(EVENT, "gone")
    cloud_says.says = [OVERLOADED, GONE]
    world.put_event("a")
    world.put_event("a", "PATCH")
    async with world.running():
        await world.until_empty()
    assert [method for method, _ in cloud_says.lines] == ["POST", "PATCH", "POST", "PATCH"]
    assert dropped(EVENT, "gone") == before


@pytest.mark.looptime
async def test_events_end_when_the_cloud_goes_and_go_on_when_it_is_back(
    world: World, cloud_says: Told
) -> None:
    for name in "abc":
        world.put_event(name)
    async with world.running():
        await until(lambda: cloud_says.heard)
        world.is_up = False
        await asyncio.sleep(60)
        assert len(cloud_says.heard) == 1
        world.is_up = True
        world.changed.beat()
        await world.until_empty()
    assert [each.body for each in cloud_says.heard] == [b"a", b"b", b"c"]


# -- when ----------------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_without_a_cloud_nothing_is_sent(world: World, cloud_says: Told) -> None:
    world.is_up = False
    world.put(Ready="False")
    async with world.running():
        await asyncio.sleep(60)
        assert not cloud_says.heard
        world.is_up = True
        world.changed.beat()
        await until(lambda: cloud_says.heard)


@pytest.mark.looptime
async def test_what_comes_while_there_is_a_cloud_is_sent(world: World, cloud_says: Told) -> None:
    async with world.running():
        await asyncio.sleep(60)
        world.put(Ready="False")
        await world.until_empty()
    assert len(cloud_says.heard) == 1


async def test_what_comes_just_when_it_begins_to_wait_is_not_overlooked(
    world: World, cloud_says: Told
) -> None:
    async def put() -> None:
        world.put(Ready="False")

    async with world.running():
        # Runs in the same turn of the loop as the replay's first look at the empty journal.
        await asyncio.create_task(put())
        await until(lambda: cloud_says.heard, 1)
