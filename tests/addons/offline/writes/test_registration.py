"""An object that kubelet created: reads find it under its name, for the same identity alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.writes.registration import Registration
from addons.requests.cloud_identity import CloudIdentity
from kube.requests.request_info import RequestInfo
from kube.store.store import Item
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import JSON, PROTOBUF, asked, body_of, in_protobuf
from tests.addons.support.samples import raw

CSINODES = "/apis/storage.k8s.io/v1/csinodes"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


class Objects:
    """Sources that may have the node."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def find(self, _identity: CloudIdentity, info: RequestInfo) -> list[Item]:
        return [cast(Item, None)] if info.name in self.names else []


class World:
    def __init__(self, answers: CachedResponses) -> None:
        self.answers, self.objects = answers, Objects()
        self.registration = Registration(cast(OfflineReads, self.objects), answers)

    async def code(self, target: str, body: bytes, identity: str = "", encoding: str = JSON) -> int:
        again = asked("POST", target, body, accept=encoding, content_type=encoding)
        return (await self.registration.refuse(CloudIdentity(identity, identity), again)).code


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with copies_in(tmp_path) as copies:
        yield World(CachedResponses(copies.access))


async def test_what_was_created_is_there_and_can_be_read(world: World) -> None:
    for encoding, body in (
        (JSON, raw({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}})),
        (PROTOBUF, csi_node()),
    ):
        made = asked("POST", CSINODES, body, accept=encoding, content_type=encoding)
        assert await world.code(CSINODES, body, encoding=encoding) == 503
        world.registration.keep("", made, {"content-type": encoding}, b"as created")
        assert await world.code(CSINODES, body, encoding=encoding) == 409
        read = asked("GET", f"{CSINODES}/n1", accept=encoding)
        kept = await world.answers.get(read.key(""))
        assert kept is not None
        assert kept.body == b"as created"
        assert await world.code(CSINODES, body, "somebody else", encoding) == 503


def csi_node() -> bytes:
    return body_of(in_protobuf("storage.k8s.io/v1", "CSINode", "n1"))


async def test_what_a_source_has_is_there(world: World) -> None:
    world.objects.names = {"n1"}
    assert await world.code("/api/v1/nodes", raw(NODE)) == 409


@pytest.mark.parametrize("body", [b"", b"{", b"[]", raw({"metadata": {}})])
async def test_what_has_no_name_is_not_known(world: World, body: bytes) -> None:
    world.objects.names = {""}
    world.registration.keep("", asked("POST", "/api/v1/nodes", body), {"content-type": JSON}, b"x")
    assert not world.answers.index
    assert await world.code("/api/v1/nodes", body) == 503
