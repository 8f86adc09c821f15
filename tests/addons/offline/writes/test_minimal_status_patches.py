"""A patch of the node's status requests only the response head; kubelet gets the object from the node's copy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.minimal_status_patches import EVENT_WAIT, MinimalStatusPatches
from addons.rules.shared_kinds import NODES
from addons.views.source import Source
from kube.http.client import Client, RawResponse, Unreachable
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.offline_parts import JSON, MERGE, PROTOBUF, STRATEGIC, asked, body_of, in_protobuf
from tests.addons.support.samples import fill, raw
from tests.support.objects import obj

STATUS = "/api/v1/nodes/n1/status?timeout=10s"
"""The target of kubelet's status patches."""
BEAT = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}
PATCH: Json = {"status": {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [BEAT]}}

pytestmark = pytest.mark.looptime


def node(version: int, **status: Any) -> Json:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    return obj("Node", "n1", "", version, uid="u", status={"conditions": [ready], **status})


WRITTEN = node(7, conditions=[BEAT])


class Cloud:
    """The store of a node's copy, and the cloud's responses; `meanwhile` runs as it answers a patch."""

    def __init__(self) -> None:
        self.store = Store()
        fill(self.store, [node(5)], 5)
        self.source = SimpleNamespace(
            user="",
            store=self.store,
            list_watch=ListWatch(NODES, field_selector="metadata.name=n1", encoding=Encoding.JSON),
            reflector=SimpleNamespace(state=State.WATCHING),
        )
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked: list[tuple[str, str, bool]] = []
        """Method, target, and whether only the head was requested."""
        self.answer = RawResponse(200, _headers(), b"")
        self.read: RawResponse | None = RawResponse(200, _headers(), raw(node(9)))
        self.writes = MinimalStatusPatches("n1", [cast(Source, self.source)])

    async def relay(
        self, method: str, target: str, *, headers: list[tuple[str, str]], body: bytes
    ) -> RawResponse:
        self.asked.append((method, target, ("Prefer", "return=minimal") in headers))
        if method == "GET":
            assert "content-type" not in {name.lower() for name, _ in headers}
            if self.read is None:
                raise Unreachable("gone")
            return self.read
        assert json.loads(body)
        self.meanwhile()
        return self.answer

    def comes(self, obj: Json) -> None:
        self.store.apply("MODIFIED", raw(obj))

    async def patch(self, request: OfflineRequest | None = None) -> RawResponse:
        request = request or asked("PATCH", STATUS, PATCH, content_type=STRATEGIC)
        headers = [("Content-Type", request.content_type), ("Accept", request.accept or "")]
        return await self.writes.relay(cast(Client, self), request, headers)


def _headers() -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict({"Content-Type": JSON, "Content-Length": "99", "Audit-Id": "a"}))


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.mark.parametrize("is_first", [False, True], ids=["after the head", "before the head"])
async def test_the_response_has_the_object_of_the_patchs_event(cloud: Cloud, is_first: bool) -> None:
    def _later(come: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(EVENT_WAIT / 2, come)

    def come() -> None:
        by_another = node(6, volumesInUse=["v"])
        cloud.comes(by_another)
        cloud.comes(WRITTEN)

    if is_first:
        cloud.meanwhile = come
    else:
        cloud.meanwhile = partial(_later, come)
    answer = await cloud.patch()
    assert (answer.status, json.loads(answer.body)) == (200, WRITTEN)
    assert dict(answer.headers) == {"Content-Type": JSON, "Audit-Id": "a"}
    assert cloud.asked == [("PATCH", STATUS, True)]


async def test_the_response_has_another_clients_write_that_contains_the_patch(cloud: Cloud) -> None:
    later = node(8, conditions=[BEAT], volumesInUse=["v"])
    cloud.meanwhile = lambda: cloud.comes(later)
    assert json.loads((await cloud.patch()).body) == later


async def test_an_object_without_the_patch_is_not_the_response(cloud: Cloud) -> None:
    """A patch that changes nothing has no event either, so the object is fetched."""
    cloud.meanwhile = lambda: cloud.comes(node(6, volumesInUse=["v"]))
    assert json.loads((await cloud.patch()).body) == node(9)
    assert cloud.asked == [("PATCH", STATUS, True), ("GET", "/api/v1/nodes/n1", False)]


@pytest.mark.parametrize("read", [None, RawResponse(503, _headers(), b"")])
async def test_the_response_counts_as_lost_if_the_object_cannot_be_read(
    cloud: Cloud, read: RawResponse | None
) -> None:
    cloud.read = read
    with pytest.raises(Unreachable):
        await cloud.patch()


@pytest.mark.parametrize(
    "answer", [RawResponse(200, _headers(), raw(WRITTEN)), RawResponse(409, _headers(), b"")]
)
async def test_a_returned_object_and_a_refusal_are_passed_on(cloud: Cloud, answer: RawResponse) -> None:
    """Over HTTP/1.1 the object is returned even if only the head was requested."""
    cloud.answer = answer
    assert await cloud.patch() is answer


@pytest.mark.parametrize(
    "request_",
    [
        asked("PATCH", STATUS, PATCH, content_type="application/json-patch+json"),
        asked("PATCH", f"{STATUS}&dryRun=All", PATCH, content_type=MERGE),
        asked("PATCH", STATUS, PATCH, content_type=STRATEGIC, accept=f"{PROTOBUF},{JSON}"),
        asked(
            "PATCH",
            STATUS,
            PATCH,
            content_type=STRATEGIC,
            accept="application/json;as=Table;v=v1;g=meta.k8s.io",
        ),
    ],
    ids=["a patch that is none twice", "a dry run", "another encoding", "another form"],
)
async def test_a_patch_that_the_copy_cannot_confirm_requests_the_complete_object(
    cloud: Cloud, request_: OfflineRequest
) -> None:
    assert await cloud.patch(request_) is cloud.answer
    assert [is_minimal for _, _, is_minimal in cloud.asked] == [False]


async def test_an_object_in_protobuf_is_answered_in_protobuf(cloud: Cloud) -> None:
    before, after = (in_protobuf("v1", "Node", "n1", resourceVersion=version) for version in ("5", "7"))
    after.fields.child("metadata").set_mapping("annotations", {"a": "b"})
    cloud.source.store = store = Store()
    store.replace(codec_for(Encoding.PROTOBUF), "v1", "Node", 5, [before.encode()])
    cloud.meanwhile = lambda: store.apply("MODIFIED", after.encode())
    body: Json = {"metadata": {"annotations": {"a": "b"}}}
    answer = await cloud.patch(
        asked("PATCH", STATUS, body, content_type=STRATEGIC, accept=f"{PROTOBUF},{JSON}")
    )
    assert (answer.headers["Content-Type"], answer.body) == (PROTOBUF, body_of(after))


def test_only_the_status_of_this_node_is_accepted_and_only_while_its_watch_is_open(cloud: Cloud) -> None:
    def takes(method: str = "PATCH", target: str = STATUS) -> bool:
        return cloud.writes.takes(asked(method, target).info)

    assert takes()
    assert not takes("PUT")
    assert not takes(target="/api/v1/nodes/n2/status")
    assert not takes(target="/api/v1/nodes/n1")
    assert not takes(target="/api/v1/namespaces/a/pods/n1/status")
    cloud.source.reflector.state = State.WAITING
    assert not takes()
