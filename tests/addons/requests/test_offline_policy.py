"""Which requests the hub answers in the cloud's place: kubelet's heartbeats and reports, and all reads."""

from __future__ import annotations

import pytest

from addons.requests.offline_policy import (
    is_answered_offline,
    is_event,
    is_own_lease,
    is_pod_creation,
    is_status_write,
    is_token_request,
)
from kube.requests.request_info import parse_request

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.mark.parametrize(
    ("method", "target", "own"),
    [
        ("GET", f"{LEASES}/n1", True),
        ("GET", f"{LEASES}/n1?timeout=10s", True),
        ("PUT", f"{LEASES}/n1", True),
        ("POST", LEASES, True),
        ("GET", f"{LEASES}/n2", False),
        ("PUT", f"{LEASES}/n2", False),
        ("GET", LEASES, False),
        ("GET", f"{LEASES}?watch=true", False),
        ("PATCH", f"{LEASES}/n1", False),
        ("DELETE", f"{LEASES}/n1", False),
        ("PUT", f"{LEASES}/n1/status", False),
        ("PUT", f"{LEASES.replace('kube-node-lease', 'kube-system')}/n1", False),
        ("PUT", "/api/v1/namespaces/kube-node-lease/configmaps/n1", False),
        ("GET", "/healthz", False),
    ],
)
def test_the_lease_of_this_node_and_no_other(method: str, target: str, own: bool) -> None:
    assert is_own_lease(parse_request(method, target), "n1") is own


READS = [
    "/version",
    "/api",
    "/apis",
    "/apis/apps/v1",
    "/openapi/v3",
    "/api/v1/nodes",
    "/api/v1/nodes/n1",
    "/api/v1/namespaces/a/secrets/s",
]
NO_READS = [
    "/healthz",
    "/metrics",
    "/api/v1/namespaces/a/pods/p/log",
    "/api/v1/nodes/n1/status",
    "/api/v1/pods?watch=true",
]


@pytest.mark.parametrize(
    ("target", "stands"), [(each, True) for each in READS] + [(each, False) for each in NO_READS]
)
def test_reads_of_what_can_be_kept(target: str, stands: bool) -> None:
    assert is_answered_offline(parse_request("GET", target)) is stands


def test_a_head_is_no_read() -> None:
    assert not is_answered_offline(parse_request("HEAD", "/api/v1/nodes/n1"))


WRITES = {
    ("PATCH", "/api/v1/nodes/n1/status"): is_status_write,
    ("PUT", "/api/v1/nodes/n1/status"): is_status_write,
    ("PATCH", "/api/v1/namespaces/a/pods/p/status"): is_status_write,
    ("POST", "/api/v1/namespaces/a/events"): is_event,
    ("PATCH", "/api/v1/namespaces/a/events/e"): is_event,
    ("POST", "/apis/events.k8s.io/v1/namespaces/a/events"): is_event,
    ("POST", "/api/v1/namespaces/a/pods"): is_pod_creation,
    ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token"): is_token_request,
}
OTHER_WRITES = [
    ("PATCH", "/api/v1/nodes/n1"),
    ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/status"),
    ("PATCH", "/apis/metrics.example.com/v1/nodes/n1/status"),
    ("PATCH", "/api/v1/namespaces/a/services/s/status"),
    ("PUT", "/api/v1/namespaces/a/events/e"),
    ("DELETE", "/api/v1/namespaces/a/events/e"),
    ("POST", "/apis/example.com/v1/namespaces/a/events"),
    ("POST", "/apis/example.com/v1/namespaces/a/pods"),
    ("POST", "/api/v1/namespaces/a/pods/p/eviction"),
    ("POST", "/api/v1/namespaces/a/pods/p/binding"),
    ("POST", "/api/v1/namespaces/a/serviceaccounts"),
    ("POST", "/apis/example.com/v1/namespaces/a/serviceaccounts/s/token"),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    ("POST", "/version"),
]


@pytest.mark.parametrize(("method", "target"), WRITES)
def test_a_write_that_is_taken_is_of_one_sort(method: str, target: str) -> None:
    info = parse_request(method, target)
    sorts = (is_status_write, is_event, is_pod_creation, is_token_request)
    assert [each for each in sorts if each(info)] == [WRITES[method, target]]
    assert is_answered_offline(info)


@pytest.mark.parametrize(("method", "target"), OTHER_WRITES)
def test_other_writes_need_the_cloud(method: str, target: str) -> None:
    assert not is_answered_offline(parse_request(method, target))
