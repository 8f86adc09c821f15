"""Statuses in the server's form: zero values, times, quantities, fields of newer servers; and wrong types."""

from __future__ import annotations

from typing import Any

import pytest

from kube.message_table import META
from kube.objects.status_json import canonical, read_time
from kube.objects.status_message import CORE


def full_name(message: str) -> str:
    return f"{META if message == 'ObjectMeta' else CORE}.{message}"


@pytest.mark.parametrize(
    ("message", "document", "expected"),
    [
        (
            "NodeCondition",
            {},
            {"type": "", "status": "", "lastHeartbeatTime": None, "lastTransitionTime": None},
        ),
        ("NodeAddress", {"type": "a", "address": None}, {"type": "a", "address": ""}),
        ("ContainerState", None, {}),
        ("ContainerState", {"running": {}}, {"running": {"startedAt": None}}),
        ("ContainerStateWaiting", {"reason": "", "message": None}, {}),
        ("NodeRuntimeHandlerFeatures", {"userNamespaces": False}, {"userNamespaces": False}),
        ("NodeRuntimeHandlerFeatures", {"userNamespaces": None}, {}),
        ("NodeSwapStatus", {"capacity": 0}, {"capacity": 0}),
        ("VolumeMountStatus", {"readOnly": False}, {"name": "", "mountPath": ""}),
        ("ContainerImage", {"sizeBytes": 0}, {"names": None}),
        ("ResourceRequirements", {"limits": {}, "claims": []}, {}),
        ("NodeDaemonEndpoints", {}, {"kubeletEndpoint": {"Port": 0}}),
        ("PodIP", {"ip": "::1", "newer": {"a": None}}, {"ip": "::1", "newer": {"a": None}}),
        ("PodIP", {"ip": "::1", "newer": None}, {"ip": "::1"}),
        ("ObjectMeta", {"labels": {"b": "1", "a": None}}, {"labels": {"a": "", "b": "1"}}),
        (
            "ResourceRequirements",
            {"limits": {"cpu": 2, "memory": "1Gi"}},
            {"limits": {"cpu": "2", "memory": "1Gi"}},
        ),
    ],
)
def test_zero_values_are_written_like_by_the_server(
    message: str, document: object, expected: dict[str, Any]
) -> None:
    assert canonical(full_name(message), document) == expected


@pytest.mark.parametrize(
    ("message", "document", "where"),
    [
        ("PodStatus", [], "PodStatus"),
        ("PodStatus", {"phase": 5}, "phase"),
        ("PodStatus", {"conditions": {}}, "conditions"),
        ("PodStatus", {"conditions": ["x"]}, r"conditions\[0\]"),
        ("PodStatus", {"startTime": "yesterday"}, "startTime"),
        ("PodStatus", {"startTime": 5}, "startTime"),
        ("PodStatus", {"observedGeneration": True}, "observedGeneration"),
        ("PodStatus", {"observedGeneration": 2**63}, "observedGeneration"),
        ("PodStatus", {"allocatedResources": []}, "allocatedResources"),
        ("PodStatus", {"allocatedResources": {"cpu": "a lot"}}, r"allocatedResources\[cpu\]"),
        ("PodStatus", {"allocatedResources": {"cpu": True}}, r"allocatedResources\[cpu\]"),
        ("DaemonEndpoint", {"Port": 2**31}, "Port"),
        ("NodeStatus", {"volumesInUse": [5]}, r"volumesInUse\[0\]"),
        ("NodeStatus", {"features": {"supplementalGroupsPolicy": 1}}, "features.supplementalGroupsPolicy"),
        ("ObjectMeta", {"labels": {"a": 5}}, r"labels\[a\]"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(
    message: str, document: object, where: str
) -> None:
    with pytest.raises(ValueError, match=where):
        canonical(full_name(message), document)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.999999999+01:00", 0),
        ("2026-01-02T03:04:05Z", 1767323045),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_times_are_normalized_like_by_the_server(text: str, seconds: int) -> None:
    assert read_time(text, "") == seconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02",
        "2026-13-02T03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:60Z",
        "",
        "\uff12026-01-02T03:04:05Z",
    ],
)
def test_malformed_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="where"):
        read_time(text, "where")
