"""Which requests the peer port answers."""

from __future__ import annotations

import pytest

from addons.requests.route_decision import peer_refusal
from kube.requests.request_info import parse_request

SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
ONE = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices/s"


@pytest.mark.parametrize(
    "target",
    [SLICES, f"{SLICES}?watch=true&resourceVersion=7", "/api/v1/services?limit=500", "/api/v1/secrets"],
)
def test_lists_and_watches_of_whole_resources_are_for_the_pool_to_decide(target: str) -> None:
    assert peer_refusal(parse_request("GET", target)) is None


@pytest.mark.parametrize(
    ("method", "target", "code", "reason"),
    [
        ("GET", "/version", 404, "path"),
        ("GET", "/livez", 404, "path"),
        ("GET", "/openapi/v2", 404, "path"),
        ("GET", ONE, 403, "verb"),
        ("POST", SLICES, 403, "verb"),
        ("DELETE", SLICES, 403, "verb"),
        ("PATCH", ONE, 403, "verb"),
        ("GET", "/api/v1/namespaces/n/services/s/status", 403, "subresource"),
        ("GET", "/api/v1/namespaces/n/services/s/proxy/x", 403, "subresource"),
        ("GET", "/api/v1/namespaces/n/services", 403, "selection"),
        ("GET", f"{SLICES}?labelSelector=a", 403, "selection"),
        ("GET", f"{SLICES}?watch=1&fieldSelector=metadata.name%3Da", 403, "selection"),
    ],
)
def test_all_else_is_refused(method: str, target: str, code: int, reason: str) -> None:
    found = peer_refusal(parse_request(method, target))
    assert found is not None
    assert (found[0], found[1].code) == (reason, code)
