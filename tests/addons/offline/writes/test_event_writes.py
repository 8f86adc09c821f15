"""Events without the cloud: kept as they came, in the journal before the answer goes out, bounded in size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from addons.offline.writes.event_writes import MAX_EVENT, EventWrites
from addons.offline.writes.journal import Journal
from addons.requests.answers import Answer
from kube.json_type import Json
from tests.addons.support.offline_parts import (
    JSON,
    PROTOBUF,
    STRATEGIC,
    asked,
    body_of,
    in_protobuf,
    journal_in,
    read,
)
from tests.addons.support.refusals import refuses

EVENTS = "/api/v1/namespaces/a/events"


def event(**metadata: str) -> Json:
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "reason": "Test"}


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with journal_in(tmp_path) as made:
        yield made


def answered(answer: Answer) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


async def test_an_event_is_answered_as_it_came_and_waits_with_its_name(journal: Journal) -> None:
    request = asked("POST", f"{EVENTS}?fieldManager=k", event(generateName="e-"))
    answer = await EventWrites(journal).create(request)
    (entry,) = journal.events.values()
    assert (answer.status, entry.method, entry.target, entry.content_type) == (
        201,
        "POST",
        f"{EVENTS}?fieldManager=k",
        JSON,
    )
    assert entry.body == answered(answer), "the name that the client knows is the one that the cloud gets"
    made = read(entry.body)
    assert (made.name.startswith("e-"), made.namespace, made.fields.text("reason")) == (True, "a", "Test")
    assert not journal.describe()["unwritten"], "the disk has it"


async def test_an_event_in_protobuf_stays_one(journal: Journal) -> None:
    sent = in_protobuf("events.k8s.io/v1", "Event", "e", "a")
    target = "/apis/events.k8s.io/v1/namespaces/a/events"
    request = asked("POST", target, body_of(sent), accept=PROTOBUF, content_type=PROTOBUF)
    answer = await EventWrites(journal).create(request)
    (entry,) = journal.events.values()
    assert (entry.content_type, read(entry.body, PROTOBUF).encode()) == (PROTOBUF, sent.encode())
    assert read(answered(answer), PROTOBUF).api_version == "events.k8s.io/v1"


@pytest.mark.parametrize(
    ("body", "accept", "code"),
    [
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, JSON, 400),
        (event(), JSON, 400),
        (event(name="e"), PROTOBUF, 406),
        ({**event(name="e"), "message": "x" * MAX_EVENT}, JSON, 413),
    ],
)
async def test_what_is_no_event_or_cannot_be_answered_does_not_wait(
    journal: Journal, body: Json, accept: str, code: int
) -> None:
    with refuses(code):
        await EventWrites(journal).create(asked("POST", EVENTS, body, accept=accept))
    assert not journal.events


PATCH: Json = {"count": 5, "lastTimestamp": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize("accept", [JSON, None, f"{PROTOBUF},{JSON}"])
async def test_a_patch_is_answered_with_what_it_says(journal: Journal, accept: str | None) -> None:
    request = asked("PATCH", f"{EVENTS}/e", PATCH, accept=accept, content_type=STRATEGIC)
    answer = await EventWrites(journal).patch(request)
    found = read(answered(answer), answer.headers["Content-Type"])
    assert (answer.status, found.kind, found.api_version, found.name, found.namespace) == (
        200,
        "Event",
        "v1",
        "e",
        "a",
    )
    assert found.fields.number("count") == 5
    (entry,) = journal.events.values()
    assert (entry.method, entry.target, entry.content_type) == ("PATCH", f"{EVENTS}/e", STRATEGIC)
    assert entry.body == request.body


async def test_a_client_that_takes_protobuf_alone_gets_the_events_name(journal: Journal) -> None:
    request = asked("PATCH", f"{EVENTS}/e", PATCH, accept=PROTOBUF, content_type=STRATEGIC)
    answer = await EventWrites(journal).patch(request)
    found = read(answered(answer), answer.headers["Content-Type"])
    assert (answer.headers["Content-Type"], found.kind, found.name, found.namespace) == (
        PROTOBUF,
        "Event",
        "e",
        "a",
    )


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "code"),
    [
        (b"{", STRATEGIC, JSON, 400),
        (b"{}", "application/apply-patch+yaml", JSON, 415),
        (b"{}", STRATEGIC, "application/yaml", 406),
        (b" " * (MAX_EVENT + 1), STRATEGIC, JSON, 413),
    ],
)
async def test_a_patch_that_makes_no_sense_does_not_wait(
    journal: Journal, body: bytes, content_type: str, accept: str, code: int
) -> None:
    with refuses(code):
        await EventWrites(journal).patch(
            asked("PATCH", f"{EVENTS}/e", body, accept=accept, content_type=content_type)
        )
    assert not journal.events


async def test_the_event_itself_goes_before_a_patch_in_case_it_has_expired(journal: Journal) -> None:
    """A patch whose event the cluster had dropped was lost, and its client had 200."""
    writes = EventWrites(journal)
    writes.keep(asked("POST", EVENTS, event(name="e")))
    patch = asked("PATCH", f"{EVENTS}/e", PATCH, content_type=STRATEGIC)
    for request in (patch, patch, asked("PATCH", f"{EVENTS}/unknown", PATCH, content_type=STRATEGIC)):
        await writes.patch(request)
    assert [(each.method, each.path.rpartition("/")[2]) for each in journal.events.values()] == [
        *(("POST", "e"), ("PATCH", "e"), ("PATCH", "e")),
        ("PATCH", "unknown"),
    ]
    for entry in list(journal.events.values()):
        journal.remove(entry)
    await writes.create(asked("POST", EVENTS, event(name="taken-here")))
    for entry in list(journal.events.values()):
        journal.remove(entry)
    await writes.patch(asked("PATCH", f"{EVENTS}/taken-here", PATCH, content_type=STRATEGIC))
    assert [each.method for each in journal.events.values()] == ["POST", "PATCH"]


async def test_the_oldest_creations_go_when_there_are_too_many_bytes(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = EventWrites(journal)
    size = len(asked("POST", EVENTS, event(name="e0")).body)
    monkeypatch.setattr("addons.offline.writes.event_writes.MAX_KEPT_BYTES", 2 * size)
    for name in ("e0", "e1", "e1", "e2"):
        writes.keep(asked("POST", EVENTS, event(name=name)))
    for name in ("e0", "e1", "e2"):
        await writes.patch(asked("PATCH", f"{EVENTS}/{name}", PATCH, content_type=STRATEGIC))
    assert [each.method for each in journal.events.values()] == ["PATCH", "POST", "PATCH", "POST", "PATCH"]
