"""Answers that an earlier release kept: what they are about is read from their bodies, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from addons.offline.cached_response import CachedResponse, about_of, resource_of
from addons.offline.cached_responses import INDEX, TABLE, CachedResponses, IndexEntry
from kube.disk.database import TableChanges
from kube.requests.object_ref import ObjectRef
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.kube.support import recorded

JSON = Encoding.JSON.value
NODE = b'{"kind":"CSINode","apiVersion":"storage.k8s.io/v1","metadata":{"name":"n1"}}'


def answer(body: bytes, content_type: str = JSON) -> CachedResponse:
    return CachedResponse({"content-type": content_type}, body)


@pytest.mark.parametrize(
    ("body", "about"),
    [
        (NODE, "storage.k8s.io/csinodes//n1"),
        (b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}', "/pods//"),
        (b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}', None),
        (b'{"kind":"APIResourceList","apiVersion":"v1"}', ""),
        (b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2"}', ""),
        (b'{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1"}', ""),
        (b'{"major":"1","minor":"36"}', ""),
        (b"{", ""),
    ],
)
def test_the_object_of_a_stored_answer_is_known(body: bytes, about: str | None) -> None:
    assert about_of(answer(body)) == about


def test_the_object_of_a_protobuf_answer_is_known() -> None:
    body = recorded.body("pods.single", Encoding.PROTOBUF)
    found = about_of(answer(body, Encoding.PROTOBUF))
    assert found is not None
    assert ObjectRef(*found.split("/")).resource == "pods"


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        *(("Pod", "pods"), ("Endpoints", "endpoints"), ("Ingress", "ingresses"), ("Gateway", "gateways")),
        *(("NetworkPolicy", "networkpolicies"), ("StorageClass", "storageclasses")),
    ],
)
def test_the_resource_of_a_kind(kind: str, resource: str) -> None:
    assert resource_of(kind) == resource


async def test_an_answer_of_an_earlier_release_is_read_and_ends_with_a_write(tmp_path: Path) -> None:
    """Its index said nothing of objects: a write would have left the answer as it was, for ever."""
    async with copies_in(tmp_path) as copies:
        rows = {"csinode": answer(NODE).dump(), "version": answer(b'{"major":"1"}').dump()}
        former = {name: orjson.dumps(("digest", len(row), 1, "")) for name, row in rows.items()}
        await copies.access.write({TABLE: TableChanges(rows), INDEX: TableChanges(former)})
        answers = CachedResponses(copies.access)
        await answers.open()
        await asyncio.gather(*copies.access.loading)
        assert set(answers.index) == {"csinode", "version"}
        answers.forget_about(ObjectRef("storage.k8s.io", "csinodes", "", "n2"))
        assert set(answers.index) == {"csinode", "version"}
        answers.forget_about(ObjectRef("storage.k8s.io", "csinodes", "", "n1"))
        assert set(answers.index) == {"version"}
        await answers.written()
        assert IndexEntry(*orjson.loads((await copies.access.rows(INDEX))["version"] or b"")).size
