"""Kubelet's status writes without the cloud: merged into each copy, journaled as one patch, reverted after a
refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from addons.offline.writes.status_writes import labels_of_others
from addons.requests.answers import Answer
from kube.errors import StatusError
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.node_pools import POOL_LABEL
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.api_objects import ApiObject
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import (
    JSON,
    MERGE,
    PROTOBUF,
    STRATEGIC,
    asked,
    body_of,
    in_protobuf,
    read,
)
from tests.addons.support.offline_world import OfflineWorld, in_encoding, open_world
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import node, raw

NODES = ResourceType("", "v1", "nodes")
NODE = "/api/v1/nodes/n1"
QUESTIONS = {each: ListWatch(NODES, field_selector="metadata.name=n1", encoding=each) for each in Encoding}
HOST, BEFORE = "kubernetes.io/hostname", {"kubernetes.io/hostname": "n1", "app": "web"}
RESTRICTED = "node-restriction.kubernetes.io/x"


class World(OfflineWorld):
    """Status writes by kubelet on a node with copies and cached responses."""

    def hold_node(self, *encodings: Encoding, version: int = 7) -> list[Store]:
        """Put copies of the node into stores, as reflectors would."""
        return [self.hold(QUESTIONS[each], version, node_tree(version)) for each in encodings]

    async def patch(self, patch: Json, kind: str = STRATEGIC, accept: str = JSON, path: str = NODE) -> Answer:
        return await self.statuses.accept(
            asked("PATCH", f"{path}/status", patch, accept=accept, content_type=kind)
        )


def node_tree(version: int = 7) -> Json:
    made = node("n1", version)
    made["metadata"]["uid"] = "u"
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {**made, "spec": {"podCIDR": "10.0.0.0/24"}, "status": status}


def node_in(encoding: Encoding, version: int = 7) -> ApiObject:
    return read(in_encoding(node_tree(version), encoding).body(), encoding)


def conditions(obj: ApiObject) -> dict[str, str]:
    return {
        each.text("type"): each.text("status") for each in obj.fields.child("status").children("conditions")
    }


def reports(**states: str) -> Json:
    return {"status": {"conditions": [{"type": kind, "status": state} for kind, state in states.items()]}}


def stored_node(store: Store) -> ApiObject:
    item = store.get(("", "n1"))
    assert item is not None
    return item.decode()


def decoded_answer(answer: Answer) -> ApiObject:
    assert isinstance(answer.body, bytes)
    return read(answer.body, answer.headers["Content-Type"])


@asynccontextmanager
async def world_in(folder: Path) -> AsyncIterator[World]:
    async with copies_in(folder) as copies, open_world(World(copies)) as made:
        yield made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as made:
        yield made


# -- the effects of a write ----------------------------------------------------------------------------------------


async def test_merging_a_large_status_does_not_block_the_loop(world: World) -> None:
    """Any process of the node may send a status of 3 MiB offline; it once blocked the loop for two seconds."""
    world.hold_node(Encoding.JSON)
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    answer = await world.patch({"status": {"images": [{"names": []}] * 10_000}}, MERGE)
    counting.cancel()
    assert answer.status == 200
    assert iterations > 100


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_status_is_merged_shown_and_stored_in_the_journal(world: World, encoding: Encoding) -> None:
    (store,) = world.hold_node(encoding)
    answer = await world.patch(reports(Ready="False", Disk="True"), accept=f"{PROTOBUF},{JSON}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, codec_for(encoding).content_type)
    for obj in (decoded_answer(answer), stored_node(store)):
        assert conditions(obj) == {"Ready": "False", "Disk": "True"}
        assert (obj.version, obj.uid, obj.name) == (7, "u", "n1")
    entry = world.journal.statuses[NODE]
    assert (entry.kind, entry.uid) == ("Node", "u")
    assert [each["status"] for each in entry.before["status"]["conditions"]] == ["True"]
    assert {each["type"]: each["status"] for each in entry.after["status"]["conditions"]} == {
        "Ready": "False",
        "Disk": "True",
    }
    assert not world.journal.describe()["unwritten"], "the disk has it before kubelet has its answer"


@pytest.mark.parametrize(
    ("method", "body", "kind"),
    [
        ("PATCH", {"status": {"phase": "Running"}}, MERGE),
        (
            "PATCH",
            [{"op": "add", "path": "/status/phase", "value": "Running"}],
            "application/json-patch+json",
        ),
        ("PUT", {**node("n1", 7), "spec": {"podCIDR": "other"}, "status": {"phase": "Running"}}, JSON),
    ],
)
async def test_each_kind_of_write_is_applied_to_the_status_only(
    world: World, method: str, body: Any, kind: str
) -> None:
    (store,) = world.hold_node(Encoding.JSON)
    request = asked(method, f"{NODE}/status", raw(body), content_type=kind)
    assert (
        decoded_answer(await world.statuses.accept(request)).fields.child("status").text("phase") == "Running"
    )
    assert stored_node(store).fields.child("spec").text("podCIDR") == "10.0.0.0/24"


async def test_copies_in_both_encodings_are_updated_and_the_client_gets_its_encoding(world: World) -> None:
    stores = world.hold_node(Encoding.JSON, Encoding.PROTOBUF)
    for accept in (JSON, PROTOBUF):
        answer = await world.patch(reports(Ready=accept[-4:]), accept=accept)
        assert answer.headers["Content-Type"] == accept
        assert {conditions(stored_node(store))["Ready"] for store in stores} == {accept[-4:]}
    assert len(world.journal.statuses) == 1


async def test_a_patched_field_is_replayed_even_if_the_copy_has_it(world: World) -> None:
    """A copy that lost its last writes in a crash is older than the cloud, whose value may differ."""
    world.hold_node(Encoding.JSON)
    await world.patch(reports(Ready="True", Other="x"))
    assert {each["type"] for each in world.journal.statuses[NODE].patch["status"]["conditions"]} == {
        "Ready",
        "Other",
    }
    await world.patch(reports(Other="y"))
    found = world.journal.statuses[NODE].patch["status"]["conditions"]
    assert {each["type"]: each["status"] for each in found} == {"Ready": "True", "Other": "y"}


async def test_concurrent_writes_lose_no_field(world: World) -> None:
    stores = world.hold_node(Encoding.JSON, Encoding.PROTOBUF)
    kinds = [f"Kind{number}" for number in range(20)]
    await asyncio.gather(*(world.patch(reports(**{kind: "True"})) for kind in kinds))
    wanted = {"Ready": "True", **dict.fromkeys(kinds, "True")}
    assert [conditions(stored_node(store)) for store in stores] == [wanted, wanted]
    entry = world.journal.statuses[NODE]
    assert {each["type"] for each in entry.after["status"]["conditions"]} == set(wanted)
    assert [each["type"] for each in entry.before["status"]["conditions"]] == ["Ready"]


# -- cached responses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_write_to_an_object_known_from_a_cached_response_is_merged_into_it(
    world: World, encoding: Encoding
) -> None:
    """The object came with a GET only, so there is no store to update."""
    get = asked("GET", NODE, accept=encoding)
    content_type = codec_for(encoding).content_type
    world.answers.cache_response(get.key(""), {"content-type": content_type}, body_of(node_in(encoding)))
    for state in ("False", "Unknown"):
        answer = await world.patch(reports(Ready=state), accept=encoding)
        assert conditions(decoded_answer(answer)) == {"Ready": state}
    cached = await world.answers.get(get.key(""))
    assert cached is not None
    assert conditions(read(cached.body, content_type)) == {"Ready": "Unknown"}
    before = world.journal.statuses[NODE].before
    assert [each["status"] for each in before["status"]["conditions"]] == ["True"]


async def test_a_table_of_the_object_does_not_hide_the_object_itself(world: World) -> None:
    """After `kubectl describe node`, a status in the other encoding was 503."""
    row = {"cells": ["n1"], "object": node_tree(7)}
    table = {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": {"resourceVersion": "7"},
        "rows": [row],
    }
    world.keep(NODE, table, accept=f"{JSON};as=Table;v=v1;g=meta.k8s.io")
    world.keep(NODE, node_tree(7), accept=PROTOBUF)
    answer = await world.patch(reports(Ready="False"), accept=JSON)
    assert conditions(decoded_answer(answer)) == {"Ready": "False"}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b"{"),
        ("text/plain", b"x"),
        (JSON, raw({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "rows": []})),
        (JSON, raw({**node("n1"), "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"})),
    ],
)
async def test_a_cached_response_without_the_object_is_not_used(
    world: World, content_type: str, body: bytes
) -> None:
    request = asked("PATCH", f"{NODE}/status", reports(Ready="False"), content_type=STRATEGIC)
    world.answers.cache_response(request.read_key(""), {"content-type": content_type}, body)
    with refuses(503):
        await world.statuses.accept(request)
    assert not world.journal.statuses


# -- refused writes ------------------------------------------------------------------------------------------------


async def test_a_write_to_an_uncached_object_is_503(world: World) -> None:
    world.hold_node(Encoding.JSON)
    with pytest.raises(StatusError) as refused:
        await world.patch(reports(Ready="False"), path="/api/v1/nodes/other")
    assert (refused.value.code, refused.value.retry_after) == (503, None)


@pytest.mark.parametrize("encoding", Encoding)
async def test_the_status_of_another_node_is_refused_offline(world: World, encoding: Encoding) -> None:
    """A caller of the plain port once made another node look not ready to kube-proxy."""
    other = in_protobuf("v1", "Node", "n2", uid="u", resourceVersion="7")
    body = body_of(other) if encoding is Encoding.PROTOBUF else raw({**node("n2", 7), "status": {}})
    get = asked("GET", "/api/v1/nodes/n2", accept=encoding)
    world.answers.cache_response(get.key(""), {"content-type": codec_for(encoding).content_type}, body)
    with pytest.raises(StatusError) as refused:
        await world.patch(reports(Ready="False"), path="/api/v1/nodes/n2", accept=encoding)
    assert (refused.value.code, "does not belong to this node" in refused.value.message) == (503, True)
    assert not world.journal.statuses


@pytest.mark.parametrize(("runs_on", "code"), [("n1", 200), ("n2", 503), ("", 503)])
@pytest.mark.parametrize("encoding", Encoding)
async def test_the_status_of_a_pod_is_accepted_on_its_own_node(
    world: World, encoding: Encoding, runs_on: str, code: int
) -> None:
    path = "/api/v1/namespaces/a/pods/p"
    pod = in_protobuf("v1", "Pod", "p", "a", uid="u", resourceVersion="7")
    if runs_on:
        pod.fields.child("spec").set("nodeName", runs_on)
    metadata = {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7"}
    in_json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": runs_on}}
    body = body_of(pod) if encoding is Encoding.PROTOBUF else raw(in_json)
    get = asked("GET", path, accept=encoding)
    world.answers.cache_response(get.key(""), {"content-type": codec_for(encoding).content_type}, body)
    write = world.patch({"status": {"phase": "Running"}}, path=path, accept=encoding)
    if code == 200:
        assert (await write).status == 200
        return
    with refuses(code):
        await write
    assert not world.journal.statuses


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("labels", [{POOL_LABEL: "other"}, {"node-restriction.kubernetes.io/a": "b"}])
async def test_labels_that_the_cloud_uses_are_not_changed_offline(
    world: World, encoding: Encoding, labels: Json
) -> None:
    """A caller of the plain port could have moved the node into another pool until the cloud was back."""
    (store,) = world.hold_node(encoding)
    with pytest.raises(StatusError) as refused:
        await world.patch({"metadata": {"labels": labels}} | reports(Ready="False"), accept=encoding)
    assert (refused.value.code, *labels) == (503, refused.value.message.rpartition(": ")[2])
    assert stored_node(store).labels == node_in(encoding).labels
    assert conditions(stored_node(store)) == {"Ready": "True"}
    assert not world.journal.statuses


async def test_kubelet_may_restore_the_nodes_own_labels_offline(world: World) -> None:
    (store,) = world.hold_node(Encoding.JSON)
    await world.patch({"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    assert stored_node(store).labels["kubernetes.io/os"] == "linux"


@pytest.mark.parametrize(
    ("patch", "kind", "accept", "code"),
    [
        ({"metadata": {"uid": "another"}}, STRATEGIC, JSON, 422),
        ({"metadata": {"resourceVersion": "6"}}, STRATEGIC, JSON, 409),
        (reports(Ready="False"), "application/apply-patch+yaml", JSON, 415),
        (reports(Ready="False"), STRATEGIC, "application/yaml", 406),
        ({"status": {"conditions": 7}}, MERGE, JSON, 422),
    ],
)
async def test_a_refused_patch_changes_nothing(
    world: World, patch: Json, kind: str, accept: str, code: int
) -> None:
    (store,) = world.hold_node(Encoding.JSON)
    before = stored_node(store).encode()
    with refuses(code):
        await world.patch(patch, kind, accept)
    assert stored_node(store).encode() == before
    assert not world.journal.statuses


@pytest.mark.parametrize(
    ("kind", "after", "others"),
    [
        ("Node", BEFORE, []),
        ("Node", BEFORE | {HOST: "other", "kubernetes.io/os": "linux"}, []),
        ("Node", {"app": "web"}, []),
        ("Node", BEFORE | {POOL_LABEL: "hangzhou"}, [POOL_LABEL]),
        ("Node", BEFORE | {"app": "db", RESTRICTED: ""}, ["app", RESTRICTED]),
        ("Node", {HOST: "n1"}, ["app"]),
        ("Pod", BEFORE, []),
        ("Pod", BEFORE | {HOST: "other"}, [HOST]),
        ("Pod", {}, ["app", HOST]),
    ],
)
def test_a_patch_of_labels_that_the_cloud_uses_is_refused(
    kind: str, after: dict[str, str], others: list[str]
) -> None:
    assert labels_of_others(kind, BEFORE, after) == others
