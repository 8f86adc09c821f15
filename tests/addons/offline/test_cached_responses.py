"""Cached responses: looked up by request, form and identity, bounded, and loaded after a restart."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import orjson
import pytest

from addons.offline.cached_response import CachedResponse, ResponseKey, about_of, resource_of, response_key
from addons.offline.cached_responses import (
    IDENTITY_BYTES,
    IDENTITY_RESPONSES,
    INDEX,
    MAX_ALL_CACHED,
    OTHERS_BYTES,
    OTHERS_RESPONSES,
    TABLE,
    CachedResponses,
    IndexEntry,
    Shares,
)
from addons.offline.copies import DiskCopies
from addons.offline.tables.disk_access import DiskAccess
from addons.telemetry import metrics
from kube.disk.database import Disk, TableChanges
from kube.disk.writer import DiskWriter
from kube.requests.object_ref import ObjectRef
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.devices import Device
from tests.addons.support.observed import value_of
from tests.kube.support import recorded


async def test_a_stored_response_and_its_owner_are_loaded_after_a_restart(copies: DiskCopies) -> None:
    before = CachedResponses(copies.access)
    before.cache_response(ResponseKey("name"), {"content-type": "text/plain", "date": "today"}, b"line\nline")
    before.cache_response(response_key("pod", "/version", "", ""), {}, b"x")
    await before.written()
    again = CachedResponses(copies.access)
    await again.open()
    cached = await again.get(ResponseKey("name"))
    assert cached is not None
    assert (cached.headers, cached.body) == ({"content-type": "text/plain"}, b"line\nline")
    assert await again.get(ResponseKey("other")) is None
    assert sorted(entry.owner == "" for entry in again.index.values()) == [False, True]


async def test_a_cluster_restore_deletes_stored_responses(copies: DiskCopies) -> None:
    """A response with a later version than the restored cloud's would count as the newest for good."""
    answers = CachedResponses(copies.access)
    copies.on_restore.append(answers.forget_all)
    answers.cache_response(ResponseKey("name"), {}, b"from before")
    copies.disprove_unused()
    assert await answers.get(ResponseKey("name")) is None
    await answers.written()
    again = CachedResponses(copies.access)
    await again.open()
    assert not again.index


async def test_the_bytes_of_stored_responses_are_bounded(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.cached_responses.MAX_ALL_CACHED", 10)
    monkeypatch.setattr("addons.offline.cached_responses.MAX_CACHED", 8)
    answers = CachedResponses(copies.access)
    answers.cache_response(ResponseKey("too large"), {}, b"123456789")
    answers.cache_response(ResponseKey("a"), {}, b"12345678")
    answers.cache_response(ResponseKey("b"), {}, b"12345678")
    assert [name for name in ("too large", "a", "b") if await answers.get(ResponseKey(name)) is not None] == [
        "b"
    ]


async def test_the_time_of_the_last_use_survives_a_restart_to_the_hour(tmp_path: Path) -> None:
    now = [1_000_000.0]
    copies = DiskCopies(DiskAccess(Disk(tmp_path / "cache"), DiskWriter(), lambda: now[0]))

    async def asked() -> int:
        await answers.written()
        again = CachedResponses(copies.access)
        await again.open()
        return again.index["name"].last_used

    answers = CachedResponses(copies.access)
    answers.cache_response(ResponseKey("name"), {}, b"body")
    assert await asked() == 1_000_000
    now[0] += 3000
    answers.cache_response(ResponseKey("name"), {}, b"body")
    assert await asked() == 1_000_000
    now[0] += 3000
    answers.cache_response(ResponseKey("name"), {}, b"body")
    assert await asked() == 1_006_000
    # The clock was set back: its current time is more credible than a stored time in the future.
    now[0] -= 5000
    assert await answers.get(ResponseKey("name")) is not None
    assert await asked() == 1_001_000
    copies.access.close()


async def test_an_evicted_response_is_deleted_from_disk(copies: DiskCopies) -> None:
    answers = CachedResponses(copies.access)
    answers.cache_response(ResponseKey("name"), {}, b"body")
    answers.cache_response(ResponseKey("other"), {}, b"body")
    await answers.written()
    for name in ("name", "unknown"):
        answers.forget(name)
    await answers.written()
    for table in (TABLE, INDEX):
        assert (await copies.access.rows(table)).keys() == {"other"}


async def test_responses_are_written_again_after_the_database_was_replaced(
    copies: DiskCopies, tmp_path: Path
) -> None:
    answers = CachedResponses(copies.access)
    answers.cache_response(ResponseKey("name"), {}, b"body")
    await answers.written()
    await copies.access.guard(copies.access.disk.close)
    (tmp_path / "cache" / "cache.db").write_bytes(b"garbage" * 1000)
    assert await answers.get(ResponseKey("name")) is None
    answers.cache_response(ResponseKey("name"), {}, b"body")
    await answers.written()
    again = CachedResponses(copies.access)
    await again.open()
    assert await again.get(ResponseKey("name")) is not None


# -- shares of the node and of callers -----------------------------------------------------------------------------


async def test_responses_to_callers_never_evict_those_to_the_node(copies: DiskCopies) -> None:
    """5,100 responses to one token once evicted the Secret that kubelet needs offline."""
    answers = CachedResponses(copies.access)
    answers.cache_response(response_key("", "/api/v1/namespaces/a/secrets/s", "", ""), {}, b"the node's")
    for owner in range(30):
        for number in range(IDENTITY_RESPONSES):
            answers.cache_response(response_key(f"pod {owner}", f"/apis/{number}", "", ""), {}, b"x")
    cached = await answers.get(response_key("", "/api/v1/namespaces/a/secrets/s", "", ""))
    assert cached is not None
    assert cached.body == b"the node's"
    assert len(answers.index) == OTHERS_RESPONSES + 1
    assert value_of(metrics.RESPONSES_EVICTED.labels("other")) > 0


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ({"": 60, "a": 4}, {"": 60, "a": 4}),
        ({"": 64, "a": 4}, {"": 64}),
        ({"a": 6}, {"a": 4}),
        ({"a": 4, "b": 4, "c": 4, "d": 4, "e": 4}, {"a": 3, "b": 3, "c": 3, "d": 3, "e": 4}),
        ({"a": 4, "": 70}, {"": 64}),
    ],
)
def test_the_bytes_of_each_share_are_bounded(sizes: dict[str, int], left: dict[str, int]) -> None:
    """In MiB: 64 in total, 16 for all callers together, 4 for each caller."""
    assert (MAX_ALL_CACHED, OTHERS_BYTES, IDENTITY_BYTES) == (64 * 2**20, 16 * 2**20, 4 * 2**20)
    shares = Shares()
    for owner, size in sizes.items():
        for number in range(size):
            shares.put(f"{owner}{number}", IndexEntry("", 2**20, 0, owner))
            list(shares.evict(owner))
    found = Counter(entry.owner for entry in shares.entries.values())
    assert found == left


@pytest.mark.parametrize(("identity", "bound"), [("", "MAX_RESPONSES"), ("pod", "IDENTITY_RESPONSES")])
@pytest.mark.parametrize("is_read", [True, False])
async def test_a_used_response_is_evicted_after_newer_unused_ones(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch, identity: str, bound: str, is_read: bool
) -> None:
    monkeypatch.setattr(f"addons.offline.cached_responses.{bound}", 2)
    answers = CachedResponses(copies.access)
    first, second, third = (response_key(identity, path, "", "") for path in ("/1", "/2", "/3"))
    for key in (first, second):
        answers.cache_response(key, {}, b"x")
    if is_read:
        assert await answers.get(first) is not None
    else:
        answers.cache_response(first, {}, b"x")
    answers.cache_response(third, {}, b"x")
    assert [await answers.get(key) is not None for key in (first, second, third)] == [True, False, True]


async def test_the_bytes_waiting_for_a_hanging_disk_are_bounded(tmp_path: Path) -> None:
    """150 responses of 2 MiB with the same name once took 636 MB, as each write held its own body."""
    device = Device(tmp_path)
    async with copies_in(tmp_path, device) as copies:
        device.goes_on.clear()
        answers = CachedResponses(copies.access)
        unkept = value_of(metrics.RESPONSES_UNKEPT)
        for number in range(20):
            answers.cache_response(ResponseKey("one"), {}, b"%d" % number + bytes(2 * 2**20))
            answers.cache_response(ResponseKey(f"each {number}"), {}, bytes([number]) + bytes(2 * 2**20))
            await asyncio.sleep(0)
        assert copies.access.writer.waiting <= 1
        assert value_of(metrics.RESPONSES_UNKEPT) - unkept > 10
        cached = await answers.get(ResponseKey("one"))
        assert cached is not None
        assert cached.body.startswith(b"19"), "the latest wins"
        device.goes_on.set()
        await answers.written()
        answers.cache_response(ResponseKey("each 19"), {}, b"again")
        await answers.written()
        assert await answers.get(ResponseKey("each 19")) is not None


# -- responses stored by an earlier release ------------------------------------------------------------------------


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
def test_the_object_of_a_stored_response_is_indexed(body: bytes, about: str | None) -> None:
    assert about_of(answer(body)) == about


def test_the_object_of_a_protobuf_response_is_indexed() -> None:
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
def test_the_resource_name_is_derived_from_the_kind(kind: str, resource: str) -> None:
    assert resource_of(kind) == resource


async def test_a_response_of_an_earlier_release_is_read_and_invalidated_by_a_write(tmp_path: Path) -> None:
    """Its index had no object names, so a write would have left the response unchanged, for ever."""
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
