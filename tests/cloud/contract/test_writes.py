"""Create, update, patch and delete: the stored objects, the responses, and conflicts."""

from __future__ import annotations

import pytest

from tests.cloud.caller import Caller
from tests.cloud.contract.objects import config_map, names, version
from tests.cloud.rest import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH


async def test_create_gives_an_object_its_identity(caller: Caller, config_maps: str, namespace: str) -> None:
    before = version(await caller.get(config_maps))
    reply = await caller.send("POST", config_maps, body=config_map("a", {"x": "1"}, k="v"))
    created = reply.json()
    assert reply.status == 201
    assert (created["apiVersion"], created["kind"], created["data"]) == ("v1", "ConfigMap", {"k": "v"})
    metadata = created["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("a", namespace, {"x": "1"})
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert version(created) > before
    fetched = await caller.get(f"{config_maps}/a")
    assert fetched == created


async def test_create_needs_neither_kind_nor_api_version(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, {"metadata": {"name": "a"}})
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")


async def test_a_generated_name_has_five_more_characters(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, {"metadata": {"generateName": "g-"}})
    name = created["metadata"]["name"]
    assert name.startswith("g-")
    assert len(name) == 7
    assert created["metadata"]["generateName"] == "g-"


async def test_server_fields_ignore_the_clients_values(caller: Caller, config_maps: str) -> None:
    metadata = {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}
    created = await caller.post(config_maps, {"metadata": metadata})
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["creationTimestamp"] > "2002"


async def test_a_second_create_of_a_name_is_a_conflict(caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("a"))
    reply = await caller.send("POST", config_maps, body=config_map("a"))
    status = reply.json()
    assert (reply.status, status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_update_replaces_the_object(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, config_map("a", {"x": "1"}, k="v"))
    updated = await caller.put(f"{config_maps}/a", {**created, "data": {"other": "w"}})
    assert updated["data"] == {"other": "w"}
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
    assert version(updated) > version(created)


async def test_the_second_update_of_a_version_is_a_conflict(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, config_map("a"))
    await caller.put(f"{config_maps}/a", {**created, "data": {"k": "first"}})
    reply = await caller.send("PUT", f"{config_maps}/a", body={**created, "data": {"k": "second"}})
    status = reply.json()
    assert (reply.status, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )
    assert (await caller.get(f"{config_maps}/a"))["data"] == {"k": "first"}


async def test_update_without_a_version_overwrites(caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("a", k="v"))
    updated = await caller.put(f"{config_maps}/a", config_map("a", k="w"))
    assert updated["data"] == {"k": "w"}


async def test_update_of_another_uid_is_a_conflict(caller: Caller, config_maps: str) -> None:
    await caller.post(config_maps, config_map("a"))
    reply = await caller.send("PUT", f"{config_maps}/a", body={"metadata": {"name": "a", "uid": "other"}})
    assert (reply.status, reply.json()["reason"]) == (409, "Conflict")


async def test_update_that_changes_nothing_makes_no_version(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, config_map("a", k="v"))
    assert version(await caller.put(f"{config_maps}/a", created)) == version(created)
    patch = {"data": {"k": "v"}}
    assert version(await caller.patch(f"{config_maps}/a", patch)) == version(created)


async def test_some_kinds_are_created_by_an_update(caller: Caller, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "h"}}
    reply = await caller.send("PUT", f"{leases}/l", body=lease)
    assert (reply.status, reply.json()["spec"]) == (201, {"holderIdentity": "h"})
    reply = await caller.send("PUT", f"{leases}/l", body=lease)
    assert (reply.status, reply.json()["reason"]) == (422, "Invalid")
    assert "metadata.resourceVersion" in reply.json()["message"]


@pytest.mark.parametrize(
    ("content_type", "patch", "data"),
    [
        (MERGE_PATCH, {"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}),
        (STRATEGIC_PATCH, {"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}),
        (
            JSON_PATCH,
            [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/c", "value": "3"}],
            {"b": "2", "c": "3"},
        ),
    ],
    ids=["merge", "strategic", "json"],
)
async def test_patch_changes_only_the_named_fields(
    caller: Caller, config_maps: str, content_type: str, patch: object, data: dict[str, str]
) -> None:
    created = await caller.post(config_maps, config_map("a", a="1", b="2"))
    patched = await caller.patch(f"{config_maps}/a", patch, content_type)
    assert patched["data"] == data
    assert version(patched) > version(created)


async def test_patch_with_an_old_version_is_a_conflict(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, config_map("a"))
    await caller.patch(f"{config_maps}/a", {"data": {"k": "v"}})
    old = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"k": "w"}}
    reply = await caller.send("PATCH", f"{config_maps}/a", body=old, content_type=MERGE_PATCH)
    assert (reply.status, reply.json()["reason"]) == (409, "Conflict")


async def test_strategic_merge_uses_the_merge_keys_of_a_node(caller: Caller, namespace: str) -> None:
    node = {"metadata": {"name": namespace}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await caller.post("/api/v1/nodes", node)
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    order = [{"type": "Ready"}, {"type": "DiskPressure"}]
    patch = {"status": {"$setElementOrder/conditions": order, "conditions": conditions}}
    patched = await caller.patch(f"/api/v1/nodes/{namespace}/status", patch, STRATEGIC_PATCH)
    shown = [(one["type"], one["status"]) for one in patched["status"]["conditions"]]
    assert shown == [("Ready", "True"), ("DiskPressure", "False")]
    patch = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    patched = await caller.patch(f"/api/v1/nodes/{namespace}/status", patch, STRATEGIC_PATCH)
    assert [one["type"] for one in patched["status"]["conditions"]] == ["DiskPressure"]
    patched = await caller.patch(
        f"/api/v1/nodes/{namespace}", {"status": {"conditions": None}}, STRATEGIC_PATCH
    )
    assert [one["type"] for one in patched["status"]["conditions"]] == ["DiskPressure"]
    await caller.delete(f"/api/v1/nodes/{namespace}")


async def test_strategic_merge_orders_the_ports_of_a_service(caller: Caller, namespace: str) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    created = await caller.post(services, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    assert created["spec"]["type"] == "ClusterIP"
    assert created["spec"]["clusterIPs"] == [created["spec"]["clusterIP"]]
    patch = {"spec": {"ports": [{"port": 80, "name": "c"}, {"port": 82, "name": "d"}]}}
    patched = await caller.patch(f"{services}/s", patch, STRATEGIC_PATCH)
    assert [(port["port"], port["name"]) for port in patched["spec"]["ports"]] == [
        (80, "c"),
        (82, "d"),
        (81, "b"),
    ]
    assert patched["spec"]["clusterIP"] == created["spec"]["clusterIP"]


async def test_the_status_of_a_custom_resource_has_its_own_path(caller: Caller, things: str) -> None:
    thing = {"apiVersion": "contract.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    created = await caller.post(things, {**thing, "spec": {"x": 1}, "status": {"y": 1}})
    assert "status" not in created
    assert created["metadata"]["generation"] == 1
    patched = await caller.patch(f"{things}/t/status", {"spec": {"x": 2}, "status": {"y": 2}})
    assert (patched["spec"], patched["status"]) == ({"x": 1}, {"y": 2})
    assert patched["metadata"]["generation"] == 1
    patched = await caller.patch(f"{things}/t", {"spec": {"x": 3}, "status": {"y": 3}})
    assert (patched["spec"], patched["status"]) == ({"x": 3}, {"y": 2})
    assert patched["metadata"]["generation"] == 2
    assert (await caller.get(f"{things}/t/status")) == patched


async def test_delete_returns_a_status(caller: Caller, config_maps: str) -> None:
    created = await caller.post(config_maps, config_map("a"))
    answer = await caller.delete(f"{config_maps}/a")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert (await caller.send("GET", f"{config_maps}/a")).status == 404


async def test_delete_of_a_service_returns_the_service(caller: Caller, namespace: str) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    await caller.post(services, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    assert (await caller.delete(f"{services}/s"))["kind"] == "Service"


async def test_an_event_is_served_in_both_api_groups(caller: Caller, namespace: str) -> None:
    core, new = (
        f"/api/v1/namespaces/{namespace}/events",
        f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
    )
    involved = {"kind": "Pod", "namespace": namespace, "name": "p"}
    await caller.post(
        core,
        {
            "metadata": {"name": "e"},
            "involvedObject": involved,
            "message": "m",
            "reason": "r",
            "type": "Normal",
        },
    )
    event = await caller.get(f"{new}/e")
    assert (event["regarding"], event["note"], event["reason"]) == (involved, "m", "r")
    assert names(await caller.get(core, fieldSelector="involvedObject.name=p,type=Normal")) == ["e"]
    assert names(await caller.get(new, fieldSelector="regarding.name=other")) == []


async def test_self_subject_reviews_are_answered(caller: Caller) -> None:
    review = await caller.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review["status"]["userInfo"]["username"]
    question = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    answer = await caller.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question)
    assert answer["status"]["allowed"] is True


async def test_a_service_account_gets_tokens(caller: Caller, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await caller.post(accounts, {"metadata": {"name": "sa"}})
    asked = {"spec": {"audiences": ["x"], "expirationSeconds": 3600}}
    reply = await caller.send("POST", f"{accounts}/sa/token", body=asked)
    answer = reply.json()
    assert (reply.status, answer["kind"], answer["spec"]["audiences"]) == (201, "TokenRequest", ["x"])
    assert answer["status"]["token"]
    assert answer["status"]["expirationTimestamp"].endswith("Z")
    assert (await caller.send("POST", f"{accounts}/none/token", body={})).status == 404
