"""Lists as views serve them, on a scriptable cloud: their content, permitted callers and forms."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest

from addons.requests.caller import Caller, CredentialSource
from kube.json_type import Json
from kube.requests.request_info import RequestInfo
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import POD, SERVICES, cloud_service, node, service
from tests.addons.support.small_api import small_api
from tests.cloud.scriptable import ScriptableCloud, server
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching

PROTOBUF = "application/vnd.kubernetes.protobuf"
ZERO = f"{SERVICES}?resourceVersion=0"
SECRETS = "/api/v1/namespaces/default/secrets"


WEB = "system:serviceaccount:shop:web"


def user(cloud: ScriptableCloud, token: str, name: str) -> None:
    cloud.access.tokens[token] = User(name)


# -- lists ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
async def test_a_list_is_served_from_the_nodes_copy(parts: HubWorld, cloud: ScriptableCloud) -> None:
    for _ in range(3):
        code, found = await parts.ask(ZERO)
        assert (code, found["kind"], found["apiVersion"]) == (200, "ServiceList", "v1")
        assert found["metadata"]["resourceVersion"] == str(cloud.store.version)
        assert [item["metadata"]["name"] for item in found["items"]] == ["lb", "web"]
    assert cloud.requests.count(verb="list", resource="services") == 1


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("rules", [{}, {"filter_discardcloudservice": "cached/services"}])
async def test_each_response_has_the_clouds_warning_header(
    parts: HubWorld, monkeypatch: pytest.MonkeyPatch, rules: dict[str, str]
) -> None:
    """kubectl prints it; a view once omitted it, unlike a relayed list."""
    warning, headers = '299 - "v1 Services is deprecated"', server._headers
    monkeypatch.setattr(server, "_headers", lambda kind: {**headers(kind), "Warning": warning})
    parts.set_rules({"cache_agents": "cached", **rules})
    for target in (ZERO, f"{SERVICES}?watch=true", *([SERVICES] if rules else [])):
        async with parts.open(parts.context(target), target) as answer:
            assert await answer.status == 200
            assert answer.headers["Warning"] == warning


async def test_a_resource_without_versions_is_relayed() -> None:
    """Metrics cannot be watched; a copy once served their first values for ever."""
    metric: Json = {"metadata": {"name": "web", "namespace": "shop"}, "usage": "1"}
    found: Json = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
    metrics = "/apis/metrics.k8s.io/v1beta1/pods"
    target = f"{metrics}?resourceVersion=0"
    async with (
        small_api({metrics: {**found, "items": [metric]}}) as url,
        HubWorld(cast(ScriptableCloud, SimpleNamespace(url=url))) as parts,
    ):
        for usage in ("1", "2", "3"):
            metric["usage"] = usage
            code, said = await parts.ask(target)
            assert (code, said["items"][0]["usage"]) == (200, usage)
        with patch.object(parts.serving, "_filters", return_value=("a filter",)):
            code, said = await parts.ask(target)
        assert (code, "no resourceVersion" in said["message"]) == (400, True)


async def test_a_known_empty_list_is_a_200(parts: HubWorld) -> None:
    assert await parts.names(ZERO) == []


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("labelSelector=app%3Dweb", ["web"]),
        ("labelSelector=%21app", ["db", "lb"]),
        ("fieldSelector=metadata.name%3Dlb", ["lb"]),
        ("fieldSelector=spec.clusterIP%21%3DNone", ["lb", "web"]),
        ("fieldSelector=spec.type%3DLoadBalancer", ["lb"]),
        ("fieldSelector=spec.type%3DLoadBalancer&labelSelector=app%3Dweb", []),
    ],
)
async def test_selectors_on_shared_resources_are_applied_by_the_hub(
    parts: HubWorld, cloud: ScriptableCloud, query: str, names: list[str]
) -> None:
    labelled = service("web")
    labelled["metadata"]["labels"] = {"app": "web"}
    for value in (labelled, cloud_service("lb"), service("db", clusterIP="None")):
        cloud.store.create(value)
    assert await parts.names(f"{ZERO}&{query}") == names
    assert [each.query for each in cloud.requests.where(matching(verb="list", resource="services"))] == [
        "limit=500"
    ]


async def test_a_namespaced_list_of_a_shared_resource_uses_the_common_copy(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    other = service("other")
    other["metadata"]["namespace"] = "kube-system"
    cloud.store.create(other)
    cloud.store.create(service("web"))
    assert await parts.names("/api/v1/namespaces/kube-system/services?resourceVersion=0") == ["other"]
    assert cloud.requests.where(matching(path="/api/v1/namespaces/kube-system/services")) == []


async def test_field_selectors_without_local_fields_are_sent_to_the_cloud(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(node("n1"))
    cloud.store.create(node("n2"))
    target = "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&resourceVersion=0"
    assert await parts.names(target) == ["n1"]
    (asked,) = cloud.requests.where(matching(verb="list", resource="nodes"))
    assert "metadata.name" in asked.query, "a node may be allowed to read itself alone"


@pytest.mark.usefixtures("web")
async def test_a_selector_on_an_unknown_field_is_sent_to_the_cloud(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.faults.add(
        Refuse(400, message="field label not supported"), times=None, when=matching(resource="services")
    )
    code, found = await parts.ask(f"{ZERO}&fieldSelector=spec.unknown%3Da")
    assert (code, found["message"]) == (400, "field label not supported")
    (asked,) = {each.query for each in cloud.requests.where(matching(resource="services"))}
    assert "spec.unknown" in asked


# -- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
async def test_a_filtered_list_without_a_version_is_as_new_as_the_cloud(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    parts.set_rules({"filter_discardcloudservice": "chosen/services"})
    assert await parts.names(SERVICES, "chosen") == ["web"]
    for number in range(3):
        cloud.store.create(service(f"new-{number}"))
        code, found = await parts.ask(SERVICES, "chosen")
        assert code == 200
        assert f"new-{number}" in [item["metadata"]["name"] for item in found["items"]]
        assert int(found["metadata"]["resourceVersion"]) >= cloud.store.version
    full_lists = [
        each for each in cloud.requests.where(matching(verb="list")) if "PartialObject" not in each.accept
    ]
    assert len(full_lists) == 1, "the objects crossed the link once"


@pytest.mark.usefixtures("web")
async def test_a_list_waits_for_a_future_version(parts: HubWorld, cloud: ScriptableCloud) -> None:
    await parts.names(ZERO)
    asked = asyncio.create_task(parts.names(f"{SERVICES}?resourceVersion={cloud.store.version + 1}"))
    done, _ = await asyncio.wait([asked], timeout=0.05)
    assert not done
    cloud.store.create(service("late"))
    assert "late" in await asked


@pytest.mark.usefixtures("web")
async def test_an_exact_version_is_served_or_410(parts: HubWorld, cloud: ScriptableCloud) -> None:
    parts.set_rules({"filter_discardcloudservice": "chosen/services"})
    exact = f"{SERVICES}?resourceVersionMatch=Exact&resourceVersion="
    assert await parts.names(f"{exact}{cloud.store.version}", "chosen") == ["web"]
    old = cloud.store.version
    cloud.store.create(service("new"))
    await parts.names(f"{SERVICES}?resourceVersion={cloud.store.version}", "chosen")
    assert (await parts.ask(f"{exact}{old}", "chosen"))[0] == 410


# -- forms ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
async def test_each_encoding_has_its_own_copy(parts: HubWorld, cloud: ScriptableCloud) -> None:
    async with parts.open(parts.context(ZERO, accept=PROTOBUF)) as response:
        assert response.content_type == PROTOBUF
        assert (await response.read_body()).startswith(b"k8s\x00")
    assert await parts.names(ZERO) == ["lb", "web"]
    assert cloud.requests.count(verb="list", resource="services") == 2


@pytest.mark.usefixtures("web")
async def test_a_metadata_list_has_metadata_only(parts: HubWorld) -> None:
    metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    code, found = await parts.ask(ZERO, accept=metadata)
    assert (code, found["kind"], found["apiVersion"]) == (200, "PartialObjectMetadataList", "meta.k8s.io/v1")
    assert "spec" not in found["items"][0]


async def test_a_kind_without_protobuf_is_json_if_the_client_accepts_it(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    pools = "/apis/apps.openyurt.io/v1beta2/nodepools?resourceVersion=0"
    async with parts.open(parts.context(pools, accept=f"{PROTOBUF},application/json")) as response:
        assert (await response.status, response.content_type) == (200, "application/json")
    async with parts.open(parts.context(pools, accept=PROTOBUF)) as response:
        assert await response.status == 406


# -- callers -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
async def test_a_pod_reads_the_shared_copy_after_one_review(parts: HubWorld, cloud: ScriptableCloud) -> None:
    user(cloud, "pod", WEB)
    for _ in range(2):
        assert await parts.names(ZERO, caller=POD) == ["lb", "web"]
    assert cloud.requests.count(resource="selfsubjectaccessreviews") == 1
    assert {each.user for each in cloud.requests.where(matching(verb="list"))} == {"system:node:n1"}


@pytest.mark.usefixtures("web")
async def test_a_pod_without_permission_gets_403(parts: HubWorld, cloud: ScriptableCloud) -> None:
    user(cloud, "pod", WEB)
    cloud.access.allowed["system:serviceaccount:shop:web"] = lambda info: (
        info.type is None or (info.type.group == "authorization.k8s.io")
    )
    code, found = await parts.ask(ZERO, caller=POD)
    assert (code, found["reason"]) == (403, "Forbidden")
    assert (await parts.ask(f"{SERVICES}?watch=true&resourceVersion=0", caller=POD))[0] == 403


def _has_no_config_maps(info: RequestInfo) -> bool:
    return info.type is None or info.type.resource != "configmaps"


async def test_a_shared_resource_is_read_from_the_copy_of_the_node_by_permitted_callers(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    user(cloud, "pod", WEB)
    parts.set_rules({"cache_agents": "cached", "pool_resources": "/v1/configmaps"})
    target, asks_of_maps = (
        "/api/v1/configmaps?resourceVersion=0",
        matching(verb="list", resource="configmaps"),
    )
    assert (await parts.ask(target, caller=POD))[0] == 200
    assert {each.user for each in cloud.requests.where(asks_of_maps)} == {"system:node:n1"}
    user(cloud, "other", "stranger")
    cloud.access.allowed["stranger"] = _has_no_config_maps
    assert (await parts.ask(target, caller=Caller(CredentialSource.OWN, "Bearer other")))[0] == 403


async def test_a_shared_resource_closed_to_the_node_is_read_with_the_token_of_the_caller(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    user(cloud, "pod", WEB)
    parts.set_rules({"cache_agents": "cached", "pool_resources": "/v1/configmaps"})
    cloud.access.allowed["system:node:n1"] = _has_no_config_maps
    code, found = await parts.ask("/api/v1/configmaps?resourceVersion=0", caller=POD)
    assert (code, found["kind"]) == (200, "ConfigMapList")


async def test_an_unknown_token_gets_401(parts: HubWorld) -> None:
    assert (await parts.ask(ZERO, caller=POD))[0] == 401
    assert (await parts.ask(f"{SECRETS}?resourceVersion=0", caller=POD))[0] == 401


async def test_an_unshared_resource_is_read_with_the_token_of_the_caller(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    user(cloud, "pod", WEB)
    target = f"{SECRETS}?resourceVersion=0"
    assert await parts.names(target) == []
    assert await parts.names(target, caller=POD) == []
    found = [each.user for each in cloud.requests.where(matching(verb="list", resource="secrets"))]
    assert found == ["system:node:n1", "system:serviceaccount:shop:web"]


@pytest.mark.parametrize("target", [ZERO, f"{SECRETS}?resourceVersion=0"])
@pytest.mark.usefixtures("web")
async def test_a_caller_with_an_unreadable_credential_does_not_read_as_the_hub(
    parts: HubWorld, cloud: ScriptableCloud, target: str
) -> None:
    """A token in Sec-WebSocket-Protocol is the caller's own credential, but gives the hub no Authorization header for a
    review."""
    asked = parts.context(target)
    asked.caller = Caller(CredentialSource.OWN, "")
    async with parts.open(asked) as response:
        assert await response.status in (401, 403), await response.read_body()
    assert cloud.requests.where(matching(user="system:node:n1", verb="list")) == []
