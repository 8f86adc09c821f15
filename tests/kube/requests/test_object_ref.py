"""References to the objects of a request, across versions and groups of their API."""

from __future__ import annotations

import pytest

from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import parse_request

PODS = "/api/v1/namespaces/a/pods"


def ref(path: str) -> ObjectRef:
    found = ObjectRef.of(parse_request("GET", path))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (f"{PODS}/x", f"{PODS}/x", True),
        (f"{PODS}/x", f"{PODS}/x/status", True),
        (f"{PODS}/x", f"{PODS}/y", False),
        (f"{PODS}/x", PODS, True),
        (f"{PODS}/x", "/api/v1/pods", True),
        (f"{PODS}/x", "/api/v1/namespaces/b/pods", False),
        (f"{PODS}/x", "/api/v1/namespaces/a/services/x", False),
        ("/apis/autoscaling/v1/namespaces/a/hpas/x", "/apis/autoscaling/v2/namespaces/a/hpas/x", True),
        ("/apis/events.k8s.io/v1/namespaces/a/events/x", "/api/v1/namespaces/a/events/x", True),
        ("/api/v1/namespaces/a", "/api/v1/namespaces", True),
    ],
)
def test_references_to_the_same_object_match(one: str, other: str, meets: bool) -> None:
    assert ref(one).meets(ref(other)) is ref(other).meets(ref(one)) is meets


def test_a_path_without_objects_has_no_reference() -> None:
    assert ObjectRef.of(parse_request("GET", "/version")) is None


@pytest.mark.parametrize("path", [f"{PODS}/x", PODS, "/api/v1/nodes/n1"])
def test_a_reference_survives_encoding_and_decoding(path: str) -> None:
    assert ObjectRef.parse(ref(path).text) == ref(path)
    assert ObjectRef.parse("") is None
