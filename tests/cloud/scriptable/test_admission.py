"""How objects change before they are stored, beyond what the contract tests ask of both clouds."""

from __future__ import annotations

from typing import Any

import pytest

from kube.errors import StatusError
from tests.cloud.scriptable.admission import as_created, as_updated, check_version
from tests.cloud.scriptable.resources import ResourceTable

TABLE = ResourceTable()
CONFIG_MAPS, NODES, PODS = TABLE.named("configmaps"), TABLE.named("nodes"), TABLE.named("pods")
SERVICES, POOLS, SECRETS = TABLE.named("services"), TABLE.named("nodepools"), TABLE.named("secrets")


@pytest.mark.parametrize("name", ["a", "a.b-c", "0", "a" * 253])
def test_good_names(name: str) -> None:
    assert as_created(CONFIG_MAPS, {"metadata": {"name": name}}, "n")["metadata"]["name"] == name


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a.", "a..b", "a/b", "a" * 254])
def test_bad_names(name: str) -> None:
    with pytest.raises(StatusError) as refused:
        as_created(CONFIG_MAPS, {"metadata": {"name": name}}, "n")
    assert (refused.value.code, refused.value.details["causes"][0]["field"]) == (422, "metadata.name")


def test_what_the_client_sent_is_left_alone() -> None:
    value = {"metadata": {"name": "a"}}
    as_created(CONFIG_MAPS, value, "n")
    assert value == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"spec": {"ports": [{"port": 1}]}}, "spec.ports", [{"port": 1, "protocol": "TCP", "targetPort": 1}]),
        ({}, "spec.type", "ClusterIP"),
        ({"status": {"loadBalancer": {"ingress": []}}}, "status", {"loadBalancer": {}}),
    ],
)
def test_defaults_of_services(value: dict[str, Any], field: str, expected: object) -> None:
    found: Any = as_created(SERVICES, {"metadata": {"name": "s"}, **value}, "n")
    for name in field.split("."):
        found = found[name]
    assert found == expected


def test_a_node_is_born_with_its_status_and_a_pod_is_not() -> None:
    value = {"metadata": {"name": "a"}, "status": {"phase": "Running"}}
    assert as_created(NODES, value, "")["status"] == {"phase": "Running"}
    assert as_created(PODS, value, "n")["status"] == {"phase": "Pending"}


def test_secrets_are_given_as_text_or_as_bytes() -> None:
    value = {"metadata": {"name": "a"}, "data": {"a": "Yg=="}, "stringData": {"c": "d"}}
    created = as_created(SECRETS, value, "n")
    assert (created["data"], created["type"], "stringData" in created) == (
        {"a": "Yg==", "c": "ZA=="},
        "Opaque",
        False,
    )


@pytest.mark.parametrize(
    ("subresource", "kept"),
    [("", {"spec": {"x": 2}, "status": {"y": 1}}), ("status", {"spec": {"x": 1}, "status": {"y": 2}})],
)
def test_a_write_reaches_the_part_that_its_path_allows(subresource: str, kept: dict[str, Any]) -> None:
    old = {"metadata": {"name": "a", "uid": "u"}, "spec": {"x": 1}, "status": {"y": 1}}
    new = {"metadata": {"name": "a", "uid": "v", "labels": {"l": "1"}}, "spec": {"x": 2}, "status": {"y": 2}}
    updated = as_updated(NODES, old, new, subresource)
    assert {name: updated[name] for name in kept} == kept
    assert updated["metadata"] == {"name": "a", "uid": "u", "labels": {"l": "1"}}


def test_the_status_path_of_a_custom_resource_reaches_nothing_else() -> None:
    old = {"metadata": {"name": "a", "generation": 3}, "spec": {"x": 1}}
    new = {"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"x": 2}, "status": {"y": 2}}
    assert as_updated(POOLS, old, new, "status") == {**old, "status": {"y": 2}}
    updated = as_updated(POOLS, old, new, "")
    assert (updated["metadata"]["generation"], "status" in updated) == (4, False)


@pytest.mark.parametrize(("version", "code"), [("7", 0), ("6", 409), ("x", 500), ("", 422)])
def test_versions_of_writes(version: str, code: int) -> None:
    old = {"metadata": {"name": "a", "resourceVersion": "7"}}
    try:
        check_version(POOLS, old, version, needed=True)
        answered = 0
    except StatusError as error:
        answered = error.code
    assert answered == code
