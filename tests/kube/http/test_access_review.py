"""Reviews of a user's permissions, answered by the API server's authorizer."""

from __future__ import annotations

import pytest

from kube.http.access_review import PATH, is_allowed, right_to, spec_of
from kube.http.client import ApiResponse, Unreachable
from kube.json_type import Json
from kube.requests.request_info import parse_request
from tests.addons.support.offline_parts import JSON, QueuedAnswers


@pytest.mark.parametrize(
    ("method", "target", "attributes"),
    [
        (
            "PATCH",
            "/api/v1/namespaces/a/pods/p/status",
            {"verb": "patch", "group": "", "resource": "pods", "subresource": "status", "name": "p"},
        ),
        (
            "POST",
            "/apis/events.k8s.io/v1/namespaces/a/events",
            {"verb": "create", "group": "events.k8s.io", "resource": "events", "subresource": "", "name": ""},
        ),
    ],
)
@pytest.mark.parametrize("allowed", [True, False])
async def test_the_review_describes_exactly_the_write(
    method: str, target: str, attributes: Json, allowed: bool
) -> None:
    cloud = QueuedAnswers({"status": {"allowed": allowed}})
    assert await is_allowed(cloud, spec_of(right_to(parse_request(method, target)))) is allowed
    (heard,) = cloud.heard
    assert (heard.method, heard.path) == ("POST", PATH)
    spec = heard.document["spec"]
    assert spec["resourceAttributes"] == {"version": "v1", "namespace": "a", **attributes}


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"status": {}}'])
async def test_an_unreadable_review_counts_as_an_unreachable_server(body: bytes) -> None:
    with pytest.raises(Unreachable):
        await is_allowed(QueuedAnswers(ApiResponse(JSON, body)), spec_of(("get", "/version")))
