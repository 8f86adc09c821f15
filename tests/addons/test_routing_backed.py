"""Where requests go: what the node answers for itself when the cloud is gone, and what it never does."""

from __future__ import annotations

import pytest

from addons.caller import Caller, Lending, Listener
from addons.routing import Kind, decide
from addons.rule_table import parse_rules
from addons.standby import Standby
from kube.request import parse_request
from kube.status import StatusError

RULES = parse_rules(None)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODE = Caller(Lending.HUB)


def kind(
    method: str,
    target: str,
    component: str = "kubelet",
    caller: Caller = NODE,
    listener: Listener = Listener.PLAIN,
    keeps: bool = True,
    *,
    is_upgrade: bool = False,
    is_up: bool = True,
) -> Kind:
    info = parse_request(method, target)
    asked = (info, component, caller, listener, "application/json", RULES)
    return decide(*asked, is_upgrade=is_upgrade, standby=Standby("n", is_up) if keeps else None).kind


@pytest.mark.parametrize(
    ("method", "target", "wanted"),
    [
        ("GET", "/api/v1/nodes/n", Kind.BACKED),
        ("GET", "/api/v1/secrets", Kind.BACKED),
        ("GET", "/api/v1/secrets?resourceVersion=0", Kind.VIEW),
        ("GET", "/api/v1/secrets?watch=1&resourceVersion=5", Kind.VIEW),
        ("GET", "/api/v1/namespaces/a/pods/p/log", Kind.RELAY),
        ("GET", "/version", Kind.BACKED),
        ("GET", "/apis/apps/v1", Kind.BACKED),
        ("GET", "/openapi/v3/api/v1", Kind.BACKED),
        ("GET", "/metrics", Kind.RELAY),
        ("POST", "/api/v1/namespaces/a/secrets", Kind.RELAY),
        ("PATCH", "/api/v1/nodes/n/status", Kind.BACKED),
        ("PUT", "/api/v1/namespaces/a/pods/p/status", Kind.BACKED),
        ("PATCH", "/api/v1/nodes/n", Kind.RELAY),
        ("PATCH", "/api/v1/persistentvolumes/n/status", Kind.RELAY),
        ("POST", "/api/v1/namespaces/a/events", Kind.BACKED),
        ("PATCH", "/apis/events.k8s.io/v1/namespaces/a/events/e", Kind.BACKED),
        ("DELETE", "/api/v1/namespaces/a/events/e", Kind.RELAY),
        ("POST", "/api/v1/namespaces/a/pods", Kind.BACKED),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", Kind.RELAY),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token", Kind.BACKED),
        ("GET", f"{LEASES}/n", Kind.LOCAL),
        ("PUT", f"{LEASES}/n", Kind.LOCAL),
        ("POST", LEASES, Kind.LOCAL),
        ("PUT", f"{LEASES}/other", Kind.RELAY),
        ("GET", f"{LEASES}/other", Kind.BACKED),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/n", Kind.RELAY),
    ],
)
def test_a_cached_component(method: str, target: str, wanted: Kind) -> None:
    assert kind(method, target) is wanted


def test_nothing_is_deleted_without_the_cloud() -> None:
    target = "/api/v1/namespaces/a/pods/p"
    assert kind("DELETE", target) is Kind.RELAY
    for component in ("kubelet", "stranger"):
        with pytest.raises(StatusError, match="nothing is deleted") as refused:
            kind("DELETE", target, component=component, is_up=False)
        assert refused.value.code == 403
    assert kind("DELETE", target, keeps=False, is_up=False) is Kind.RELAY


def test_a_lease_is_local_for_who_goes_as_the_node() -> None:
    assert kind("PUT", f"{LEASES}/n", caller=Caller(Lending.OWN, "Bearer x")) is Kind.RELAY
    assert kind("PUT", f"{LEASES}/n", component="stranger") is Kind.RELAY
    assert kind("PUT", f"{LEASES}/n", keeps=False) is Kind.RELAY


def test_who_is_never_answered_by_the_node() -> None:
    target = "/api/v1/nodes"
    assert kind("GET", target, component="stranger") is Kind.RELAY
    assert kind("GET", target, caller=Caller(Lending.NONE)) is Kind.RELAY
    assert kind("GET", target, caller=Caller(Lending.OWN, "Bearer x", impersonates=True)) is Kind.RELAY
    assert kind("GET", target, listener=Listener.INTERNAL) is Kind.RELAY
    assert kind("GET", target, keeps=False) is Kind.RELAY
    assert kind("GET", target, is_upgrade=True) is Kind.RELAY
