"""Creations without the cloud: tokens while they are valid, and objects that the hub knows to be there."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.writes.creations import MIN_VALIDITY, Creations
from addons.requests.cloud_identity import CloudIdentity
from kube.errors import StatusError
from kube.requests.request_info import RequestInfo
from kube.store.store import Item
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import JSON, PROTOBUF, asked, body_of, in_protobuf
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
CSINODES = "/apis/storage.k8s.io/v1/csinodes"


def in_bytes() -> bytes:
    obj = in_protobuf(API, "TokenRequest", "s")
    obj.fields.child("status").child("expirationTimestamp").set("seconds", EXPIRES)
    return body_of(obj)


class World:
    """Creations of a node whose sources hold objects of these names."""

    def __init__(self, answers: CachedResponses) -> None:
        self.answers, self.names = answers, set[str]()
        self.clock = Clock(EXPIRES - MIN_VALIDITY - 1)
        self.creations = Creations(cast(OfflineReads, self), answers, self.clock)

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
    "protobuf": ({"content-type": PROTOBUF}, in_bytes),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_token_is_given_again_as_it_was_until_shortly_before_its_end(world: World, form: str) -> None:
    headers, body = FORMS[form][0], FORMS[form][1]()
    request = asked("POST", TARGET, b"for a pod")
    world.creations.keep("", request, headers, body)
    answer = await world.creations.token("", request)
    assert (answer.status, answer.body) == (201, body)
    assert answer.headers == {**headers, "Cache-Control": "no-cache, private"}
    world.clock.now += 2
    await world.has_no_token("", TARGET, b"for a pod")


async def test_nobody_gets_a_token_for_another_request_or_of_another(world: World) -> None:
    world.creations.keep("", asked("POST", TARGET, b"for a pod"), {"content-type": JSON}, IN_JSON)
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
async def test_an_answer_that_cannot_be_read_is_no_token(
    world: World, content_type: str, body: bytes
) -> None:
    world.creations.keep("", asked("POST", TARGET), {"content-type": content_type}, body)
    await world.has_no_token("", TARGET, b"")


@pytest.mark.parametrize("encoding", [JSON, PROTOBUF])
async def test_what_was_created_is_there_and_can_be_read(world: World, encoding: str) -> None:
    in_json = raw({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}})
    in_protobuf_ = body_of(in_protobuf("storage.k8s.io/v1", "CSINode", "n1"))
    body = in_json if encoding == JSON else in_protobuf_
    made = asked("POST", CSINODES, body, accept=encoding, content_type=encoding)
    assert await world.code(CSINODES, body, encoding=encoding) == 503
    world.creations.keep("", made, {"content-type": encoding}, b"as created")
    assert await world.code(CSINODES, body, encoding=encoding) == 409
    kept = await world.answers.get(asked("GET", f"{CSINODES}/n1", accept=encoding).key(""))
    assert kept is not None
    assert kept.body == b"as created"
    assert await world.code(CSINODES, body, "somebody else", encoding) == 503


async def test_what_a_source_has_is_there(world: World) -> None:
    world.names = {"n1"}
    body = raw({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert await world.code("/api/v1/nodes", body) == 409


@pytest.mark.parametrize("body", [b"", b"{", b"[]", raw({"metadata": {}})])
async def test_what_has_no_name_is_not_known(world: World, body: bytes) -> None:
    world.names = {""}
    world.creations.keep("", asked("POST", "/api/v1/nodes", body), {"content-type": JSON}, b"x")
    assert not world.answers.index
    assert await world.code("/api/v1/nodes", body) == 503
