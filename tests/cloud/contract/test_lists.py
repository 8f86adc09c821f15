"""Gets and lists: order, selectors, pages, versions and representations."""

from __future__ import annotations

import gzip
import json

import pytest

from kube.json_type import Json
from tests.cloud.caller import Caller
from tests.cloud.contract.objects import config_map, names, settle, version


@pytest.fixture
async def four(caller: Caller, config_maps: str) -> str:
    """Create four ConfigMaps c1 … c4 with labels n=1 … 4, two with odd=true; a real server may add its own."""
    for number in (3, 1, 4, 2):
        labels = {"n": str(number), "ours": ""} | ({"odd": "true"} if number % 2 else {})
        written = await caller.post(config_maps, config_map(f"c{number}", labels))
    await settle(caller, config_maps, written)
    return config_maps


async def test_a_list_has_kind_version_and_sorted_items(caller: Caller, four: str) -> None:
    answer = await caller.get(four, labelSelector="ours")
    assert (answer["kind"], answer["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(answer) == ["c1", "c2", "c3", "c4"]
    assert version(answer) >= max(version(item) for item in answer["items"])
    assert all("kind" not in item and "apiVersion" not in item for item in answer["items"])


async def test_the_body_of_a_list_request_is_ignored(caller: Caller, four: str) -> None:
    answer = await caller.send("GET", four, query={"labelSelector": "ours"}, body={"kind": "Nonsense"})
    assert names(answer.json()) == ["c1", "c2", "c3", "c4"]


async def test_items_of_custom_resources_have_kind_and_version(caller: Caller, things: str) -> None:
    thing = {"apiVersion": "contract.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    await caller.post(things, thing)
    answer = await caller.get(things)
    assert (answer["kind"], answer["items"][0]["kind"]) == ("ThingList", "Thing")
    # The fields of custom resources are sorted; those of built-in kinds begin with the kind.
    assert [*answer["items"][0]][:2] == ["apiVersion", "kind"]
    assert [*(await caller.get(f"{things}/t"))][:2] == ["apiVersion", "kind"]
    async with caller.watch(things, resourceVersion="0") as stream:
        assert [*(await stream.next())["object"]][:2] == ["apiVersion", "kind"]


async def test_a_list_of_all_namespaces_is_in_the_order_of_namespaces(caller: Caller, four: str) -> None:
    answer = await caller.get("/api/v1/configmaps", labelSelector="ours")
    keys = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in answer["items"]]
    assert keys == sorted(keys)
    assert f"{four.split('/')[4]}/c1" in keys


async def test_an_empty_collection_is_an_empty_list(caller: Caller, config_maps: str) -> None:
    assert (await caller.get(config_maps, labelSelector="none"))["items"] == []
    assert (await caller.get("/api/v1/namespaces/never-made/configmaps"))["items"] == []


@pytest.mark.parametrize(
    ("labels", "fields", "expected"),
    [
        ("odd", "", ["c1", "c3"]),
        ("ours,!odd", "", ["c2", "c4"]),
        ("n=2", "", ["c2"]),
        ("n==2", "", ["c2"]),
        ("ours,n!=2", "", ["c1", "c3", "c4"]),
        ("n in (1, 4)", "", ["c1", "c4"]),
        ("ours,n notin (1,4)", "", ["c2", "c3"]),
        ("n>2", "", ["c3", "c4"]),
        ("n<2", "", ["c1"]),
        ("", "metadata.name=c3", ["c3"]),
        ("ours", "metadata.name!=c3", ["c1", "c2", "c4"]),
        ("odd", "metadata.name=c2", []),
        ("ours", "metadata.namespace=elsewhere", []),
    ],
)
async def test_label_and_field_selectors_select_objects(
    caller: Caller, four: str, labels: str, fields: str, expected: list[str]
) -> None:
    assert names(await caller.get(four, labelSelector=labels, fieldSelector=fields)) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.clusterIP=None", ["headless"]),
        ("spec.clusterIP!=None", ["balanced", "plain"]),
        ("spec.type=LoadBalancer", ["balanced"]),
        ("spec.type!=LoadBalancer,spec.clusterIP!=None", ["plain"]),
    ],
)
async def test_services_are_selected_by_their_fields(
    caller: Caller, namespace: str, selector: str, expected: list[str]
) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    specs: dict[str, Json] = {
        "plain": {},
        "headless": {"clusterIP": "None"},
        "balanced": {"type": "LoadBalancer"},
    }
    for name, spec in specs.items():
        await caller.post(services, {"metadata": {"name": name}, "spec": {**spec, "ports": [{"port": 80}]}})
    assert names(await caller.get(services, fieldSelector=selector)) == expected


async def test_pods_secrets_and_nodes_are_selected_by_their_fields(caller: Caller, namespace: str) -> None:
    pods, secrets = f"/api/v1/namespaces/{namespace}/pods", f"/api/v1/namespaces/{namespace}/secrets"
    # Controllers create it in a real cluster; a pod is refused without it.
    await caller.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    for name, node in (("here", "edge-here"), ("nowhere", "")):
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
        await caller.post(pods, {"metadata": {"name": name}, "spec": spec})
    assert names(await caller.get(pods, fieldSelector="spec.nodeName=edge-here")) == ["here"]
    assert names(await caller.get(pods, fieldSelector="spec.nodeName=,status.phase=Pending")) == ["nowhere"]
    await caller.post(secrets, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert (await caller.get(f"{secrets}/s"))["data"] == {"a": "Yg=="}
    assert names(await caller.get(secrets, fieldSelector="type=Opaque")) == ["s"]
    await caller.post("/api/v1/nodes", {"metadata": {"name": namespace}})
    assert namespace in names(await caller.get("/api/v1/nodes", fieldSelector="spec.unschedulable=false"))
    await caller.delete(f"/api/v1/nodes/{namespace}")


async def test_all_pages_show_the_state_at_the_first_page(caller: Caller, four: str) -> None:
    first = await caller.get(four, limit="2", labelSelector="ours")
    await caller.post(four, config_map("c25", {"ours": ""}))
    await caller.delete(f"{four}/c3")
    second = await caller.get(
        four, limit="2", labelSelector="ours", **{"continue": first["metadata"]["continue"]}
    )
    assert (names(first), names(second)) == (["c1", "c2"], ["c3", "c4"])
    assert version(first) == version(second)
    assert "continue" not in second["metadata"]


async def test_a_contract_page_without_selectors_has_a_remaining_count(caller: Caller, four: str) -> None:
    page = await caller.get(four, limit="1")
    everything = await caller.get(four)
    assert page["metadata"]["remainingItemCount"] == len(everything["items"]) - 1
    page = await caller.get(four, limit="1", labelSelector="ours")
    assert "remainingItemCount" not in page["metadata"]


async def test_a_list_below_its_limit_has_no_continue_token(caller: Caller, four: str) -> None:
    answer = await caller.get(four, limit="50", labelSelector="ours")
    assert (len(answer["items"]), "continue" in answer["metadata"]) == (4, False)
    answer = await caller.get(four, limit="-1", labelSelector="ours")
    assert len(answer["items"]) == 4


async def test_version_0_ignores_the_limit(caller: Caller, four: str) -> None:
    answer = await caller.get(four, limit="1", resourceVersion="0", labelSelector="ours")
    assert names(answer) == ["c1", "c2", "c3", "c4"]


async def test_the_resource_version_options_of_lists(caller: Caller, four: str) -> None:
    before = str(version(await caller.get(four)))
    await caller.delete(f"{four}/c1")
    after = str(version(await caller.get(four)))
    # A server may serve a cache older than the deletion, but no cache that was once newer.
    newest = await caller.get(
        four, resourceVersionMatch="NotOlderThan", resourceVersion=after, labelSelector="ours"
    )
    assert (names(newest), version(newest) >= int(after)) == (["c2", "c3", "c4"], True)
    asked = {"resourceVersion": before, "labelSelector": "ours"}
    exact = await caller.get(four, resourceVersionMatch="Exact", **asked)
    assert (names(exact), str(version(exact))) == (["c1", "c2", "c3", "c4"], before)
    newest = await caller.get(four, resourceVersionMatch="NotOlderThan", **asked)
    assert (names(newest), version(newest) > int(before)) == (["c2", "c3", "c4"], True)
    assert names(await caller.get(four, **asked)) == ["c2", "c3", "c4"]
    legacy = await caller.get(four, limit="3", **asked)
    assert (names(legacy), str(version(legacy))) == (["c1", "c2", "c3"], before)


async def test_a_get_is_not_older_than_the_requested_version(caller: Caller, four: str) -> None:
    value = await caller.get(f"{four}/c1")
    for asked in ("", "0", value["metadata"]["resourceVersion"]):
        assert await caller.get(f"{four}/c1", resourceVersion=asked) == value


async def test_a_metadata_list_has_metadata_only(caller: Caller, four: str) -> None:
    partial = "application/json;as={};v=v1;g=meta.k8s.io"
    answer = await caller.send(
        "GET", f"{four}/c1", headers={"Accept": partial.format("PartialObjectMetadata")}
    )
    value = answer.json()
    assert answer.headers["Content-Type"] == "application/json"
    assert set(value) == {"kind", "apiVersion", "metadata"}
    assert (value["kind"], value["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert value["metadata"]["labels"]["n"] == "1"
    answer = await caller.send("GET", four, headers={"Accept": partial.format("PartialObjectMetadataList")})
    value = answer.json()
    assert value["kind"] == "PartialObjectMetadataList"
    assert {item["kind"] for item in value["items"]} == {"PartialObjectMetadata"}


async def test_large_lists_are_compressed_for_clients_that_accept_gzip(
    caller: Caller, config_maps: str
) -> None:
    await caller.post(config_maps, config_map("large", text="x" * 200_000))
    packed = await caller.send("GET", config_maps, headers={"Accept-Encoding": "gzip"})
    plain = await caller.send("GET", config_maps, headers={"Accept-Encoding": "identity"})
    assert (packed.headers.get("Content-Encoding"), plain.headers.get("Content-Encoding")) == ("gzip", None)
    assert json.loads(gzip.decompress(packed.body)) == plain.json()
    small = await caller.send("GET", "/api/v1/namespaces/default", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers
