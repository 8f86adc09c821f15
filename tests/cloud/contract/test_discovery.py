"""Discovery: the server's version, groups and resources."""

from __future__ import annotations

import pytest

from tests.cloud.caller import Caller


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_endpoints_are_ok(caller: Caller, path: str) -> None:
    reply = await caller.send("GET", path)
    assert (reply.status, reply.body) == (200, b"ok")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_the_version_of_the_server_is_served(caller: Caller) -> None:
    answer = await caller.get("/version")
    assert (answer["major"], answer["minor"]) == ("1", "36")
    assert answer["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_core_group_has_version_v1(caller: Caller, slash: str) -> None:
    assert (await caller.get(f"/api{slash}"))["versions"] == ["v1"]
    answer = await caller.get(f"/api/v1{slash}")
    assert (answer["kind"], answer["groupVersion"]) == ("APIResourceList", "v1")
    resources = {resource["name"]: resource for resource in answer["resources"]}
    pods, status = resources["pods"], resources["pods/status"]
    assert (pods["singularName"], pods["namespaced"], pods["kind"]) == ("pod", True, "Pod")
    assert (pods["shortNames"], resources["nodes"]["namespaced"]) == (["po"], False)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(pods["verbs"])
    assert set(status["verbs"]) == {"get", "patch", "update"}


async def test_discovery_names_groups_and_their_preferred_versions(caller: Caller) -> None:
    groups = {group["name"]: group for group in (await caller.get("/apis"))["groups"]}
    assert {"discovery.k8s.io", "coordination.k8s.io", "events.k8s.io"} <= set(groups)
    group = await caller.get("/apis/discovery.k8s.io")
    assert group["kind"] == "APIGroup"
    assert group["preferredVersion"] == {"groupVersion": "discovery.k8s.io/v1", "version": "v1"}
    assert group["preferredVersion"] == groups["discovery.k8s.io"]["preferredVersion"]
    answer = await caller.get("/apis/discovery.k8s.io/v1")
    assert (answer["apiVersion"], answer["groupVersion"]) == ("v1", "discovery.k8s.io/v1")
    assert [resource["name"] for resource in answer["resources"]] == ["endpointslices"]


async def test_a_custom_resource_is_discovered(caller: Caller, things: str) -> None:
    assert things
    answer = await caller.get("/apis/contract.example.com/v1")
    assert {resource["name"] for resource in answer["resources"]} == {"things", "things/status"}


async def test_the_version_in_an_unknown_media_type_is_406(caller: Caller) -> None:
    reply = await caller.send("GET", "/version", headers={"Accept": "application/foo"})
    assert (reply.status, reply.json()["reason"]) == (406, "NotAcceptable")
