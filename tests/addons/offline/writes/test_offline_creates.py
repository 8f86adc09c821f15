"""Creations without the cloud: unexpired tokens, existing objects, and events in the journal."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import orjson
import pytest

from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.writes.event_writes import MAX_EVENT, EventWrites
from addons.offline.writes.journal import Journal
from addons.offline.writes.offline_creates import MIN_VALIDITY, OfflineCreates
from addons.requests.answers import Answer
from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.request_info import RequestInfo
from kube.store.store import Item
from tests.addons.requests.test_caller import jwt
from tests.addons.support.copying import copies_in
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
from tests.addons.support.samples import raw
from tests.support.clock import Clock

TARGET = "/api/v1/namespaces/a/serviceaccounts/s/token"
API = "authentication.k8s.io/v1"
EXPIRES = 1_800_000_000
"""2027-01-15T08:00:00Z."""
IN_JSON = raw(
    {
        "apiVersion": API,
        "kind": "TokenRequest",
        "status": {"token": "secret", "expirationTimestamp": "2027-01-15T08:00:00Z"},
    }
)


def token_in_protobuf(given: str = "secret") -> bytes:
    obj = in_protobuf(API, "TokenRequest", "s")
    obj.fields.child("status").set("token", given)
    obj.fields.child("status").child("expirationTimestamp").set("seconds", EXPIRES)
    return body_of(obj)


class World:
    """Offline creations of a node whose sources have objects of these names."""

    def __init__(self, answers: CachedResponses) -> None:
        self.answers, self.names = answers, set[str]()
        self.clock = Clock(EXPIRES - MIN_VALIDITY - 1)
        self.given: list[str] = []
        self.creations = OfflineCreates(cast(OfflineReads, self), answers, self.clock, self.given.append)

    async def find(self, _identity: CloudIdentity, info: RequestInfo) -> list[Item]:
        return [cast(Item, None)] if info.name in self.names else []

    async def code(self, target: str, body: bytes, identity: str = "", encoding: str = JSON) -> int:
        again = asked("POST", target, body, accept=encoding, content_type=encoding)
        return (await self.creations.refusal(CloudIdentity(identity, identity), again)).code

    async def has_no_token(self, identity: str, target: str, body: bytes) -> None:
        with pytest.raises(StatusError) as refused:
            await self.creations.token(identity, asked("POST", target, body))
        assert refused.value.code == 503
        assert "secret" not in str(refused.value)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with copies_in(tmp_path) as copies:
        made = World(CachedResponses(copies.access))
        yield made
        await made.answers.written()


FORMS: dict[str, tuple[dict[str, str], Callable[[], bytes]]] = {
    "json": ({"content-type": JSON}, lambda: IN_JSON),
    "packed": ({"content-type": JSON, "content-encoding": "gzip"}, lambda: gzip.compress(IN_JSON)),
    "protobuf": ({"content-type": PROTOBUF}, token_in_protobuf),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_stored_token_is_returned_until_shortly_before_its_expiry(world: World, form: str) -> None:
    headers, body = FORMS[form][0], FORMS[form][1]()
    request = asked("POST", TARGET, b"for a pod")
    world.creations.cache_created("", request, headers, body)
    answer = await world.creations.token("", request)
    assert (answer.status, answer.body) == (201, body)
    assert answer.headers == {**headers, "Cache-Control": "no-cache, private"}
    world.clock.now += 2
    await world.has_no_token("", TARGET, b"for a pod")


@pytest.mark.parametrize("form", ["json", "protobuf"])
async def test_the_exp_claim_decides_when_a_token_expires(world: World, form: str) -> None:
    """kube-apiserver extends such tokens to a year; the status only says when kubelet should request the next one."""
    token = jwt({"exp": EXPIRES + 1000}).removeprefix("Bearer ")
    body = IN_JSON.replace(b'"secret"', orjson.dumps(token)) if form == "json" else token_in_protobuf(token)
    request = asked("POST", TARGET, b"for a pod")
    world.creations.cache_created("", request, FORMS[form][0], body)
    world.clock.now = EXPIRES + 1000 - MIN_VALIDITY - 1
    assert (await world.creations.token("", request)).body == body
    world.clock.now += 2
    await world.has_no_token("", TARGET, b"for a pod")


@pytest.mark.parametrize(
    ("spec", "identity", "is_given"),
    [({}, "", True), ({"audiences": ["vault"]}, "", False), ({}, "alice", False), (None, "", False)],
)
async def test_a_stored_token_for_the_cloud_was_issued_to_this_node(
    world: World, spec: Json | None, identity: str, is_given: bool
) -> None:
    wanted = raw({"apiVersion": API, "kind": "TokenRequest", "spec": spec}) if spec is not None else b"{"
    world.creations.cache_created(identity, asked("POST", TARGET, wanted), {"content-type": JSON}, IN_JSON)
    assert world.given == (["secret"] if is_given else [])


async def test_a_stored_token_is_returned_only_for_the_same_request_and_identity(world: World) -> None:
    world.creations.cache_created("", asked("POST", TARGET, b"for a pod"), {"content-type": JSON}, IN_JSON)
    await world.has_no_token("alice", TARGET, b"for a pod")
    await world.has_no_token("", TARGET, b"for another")
    await world.has_no_token("", TARGET + "?dryRun=All", b"for a pod")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b"{"),
        (JSON, b'{"apiVersion":"v1","kind":"Status"}'),
        (JSON, IN_JSON.replace(b"2027-01-15T08", b"soon")),
        (PROTOBUF, b"k8s\x00\xff"),
        (PROTOBUF, body_of(in_protobuf("v1", "Pod", "p"))),
        (PROTOBUF, body_of(in_protobuf("v1", "Status", ""))),
        ("text/plain", IN_JSON),
        ("", IN_JSON),
    ],
)
async def test_an_unreadable_stored_response_gives_no_token(
    world: World, content_type: str, body: bytes
) -> None:
    world.creations.cache_created("", asked("POST", TARGET), {"content-type": content_type}, body)
    await world.has_no_token("", TARGET, b"")


@pytest.mark.parametrize("encoding", [JSON, PROTOBUF])
async def test_a_locally_created_object_exists_and_can_be_read(world: World, encoding: str) -> None:
    csinodes = "/apis/storage.k8s.io/v1/csinodes"
    in_json = raw({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}})
    in_protobuf_ = body_of(in_protobuf("storage.k8s.io/v1", "CSINode", "n1"))
    body = in_json if encoding == JSON else in_protobuf_
    made = asked("POST", csinodes, body, accept=encoding, content_type=encoding)
    assert await world.code(csinodes, body, encoding=encoding) == 503
    world.creations.cache_created("", made, {"content-type": encoding}, b"as created")
    for accept in (JSON, PROTOBUF):
        again = asked("POST", csinodes, body, accept=accept, content_type=encoding)
        assert (await world.creations.refusal(HUB_IDENTITY, again)).code == 409
    cached = await world.answers.get(asked("GET", f"{csinodes}/n1", accept=encoding).key(""))
    assert cached is not None
    assert cached.body == b"as created"
    assert await world.code(csinodes, body, "somebody else", encoding) == 503


async def test_creating_an_object_that_a_source_has_is_409(world: World) -> None:
    world.names = {"n1"}
    body = raw({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert await world.code("/api/v1/nodes", body) == 409


@pytest.mark.parametrize("body", [b"", b"{", b"[]", raw({"metadata": {}})])
async def test_an_object_without_a_name_is_not_stored(world: World, body: bytes) -> None:
    world.names = {""}
    world.creations.cache_created("", asked("POST", "/api/v1/nodes", body), {"content-type": JSON}, b"x")
    assert not world.answers.index
    assert await world.code("/api/v1/nodes", body) == 503


EVENTS = "/api/v1/namespaces/a/events"


def event(**metadata: str) -> Json:
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "reason": "Test"}


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with journal_in(tmp_path) as made:
        yield made


def body_bytes(answer: Answer) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


async def test_an_event_is_echoed_and_journaled_with_its_name(journal: Journal) -> None:
    request = asked("POST", f"{EVENTS}?fieldManager=k", event(generateName="e-"))
    answer = await EventWrites(journal).create(request)
    (entry,) = journal.events.values()
    assert (answer.status, entry.method, entry.target, entry.content_type) == (
        201,
        "POST",
        f"{EVENTS}?fieldManager=k",
        JSON,
    )
    assert entry.body == body_bytes(answer), "the name that the client knows is the one that the cloud gets"
    made = read(entry.body)
    assert (made.name.startswith("e-"), made.namespace, made.fields.text("reason")) == (True, "a", "Test")
    assert not journal.describe()["unwritten"], "the disk has it"


async def test_an_event_in_protobuf_is_journaled_in_protobuf(journal: Journal) -> None:
    sent = in_protobuf("events.k8s.io/v1", "Event", "e", "a")
    target = "/apis/events.k8s.io/v1/namespaces/a/events"
    request = asked("POST", target, body_of(sent), accept=PROTOBUF, content_type=PROTOBUF)
    answer = await EventWrites(journal).create(request)
    (entry,) = journal.events.values()
    assert (entry.content_type, read(entry.body, PROTOBUF).encode()) == (PROTOBUF, sent.encode())
    assert read(body_bytes(answer), PROTOBUF).api_version == "events.k8s.io/v1"


@pytest.mark.parametrize(
    ("body", "accept", "code"),
    [
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, JSON, 400),
        (event(), JSON, 400),
        (event(name="e"), "text/plain", 406),
        ({**event(name="e"), "message": "x" * MAX_EVENT}, JSON, 413),
    ],
)
async def test_a_malformed_event_is_refused_and_not_stored(
    journal: Journal, body: Json, accept: str, code: int
) -> None:
    with refuses(code):
        await EventWrites(journal).create(asked("POST", EVENTS, body, accept=accept))
    assert not journal.events


PATCH: Json = {"count": 5, "lastTimestamp": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize("accept", [JSON, None, f"{PROTOBUF},{JSON}"])
async def test_a_patch_of_an_event_is_answered_with_its_fields(journal: Journal, accept: str | None) -> None:
    request = asked("PATCH", f"{EVENTS}/e", PATCH, accept=accept, content_type=STRATEGIC)
    answer = await EventWrites(journal).patch(request)
    found = read(body_bytes(answer), answer.headers["Content-Type"])
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


async def test_a_client_that_accepts_protobuf_only_gets_the_events_name(journal: Journal) -> None:
    request = asked("PATCH", f"{EVENTS}/e", PATCH, accept=PROTOBUF, content_type=STRATEGIC)
    answer = await EventWrites(journal).patch(request)
    found = read(body_bytes(answer), answer.headers["Content-Type"])
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
async def test_a_malformed_patch_of_an_event_is_not_journaled(
    journal: Journal, body: bytes, content_type: str, accept: str, code: int
) -> None:
    with refuses(code):
        await EventWrites(journal).patch(
            asked("PATCH", f"{EVENTS}/e", body, accept=accept, content_type=content_type)
        )
    assert not journal.events


async def test_an_event_is_replayed_before_its_patch_in_case_it_has_expired(journal: Journal) -> None:
    """A patch was once lost, although its client had got 200, because the cluster had expired the event."""
    writes = EventWrites(journal)
    writes.cache_event(asked("POST", EVENTS, event(name="e")))
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


async def test_the_oldest_creations_are_evicted_beyond_the_byte_bound(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = EventWrites(journal)
    size = len(asked("POST", EVENTS, event(name="e0")).body)
    monkeypatch.setattr("addons.offline.writes.event_writes.MAX_CREATION_BYTES", 2 * size)
    for name in ("e0", "e1", "e1", "e2"):
        writes.cache_event(asked("POST", EVENTS, event(name=name)))
    for name in ("e0", "e1", "e2"):
        await writes.patch(asked("PATCH", f"{EVENTS}/{name}", PATCH, content_type=STRATEGIC))
    assert [each.method for each in journal.events.values()] == ["PATCH", "POST", "PATCH", "POST", "PATCH"]
