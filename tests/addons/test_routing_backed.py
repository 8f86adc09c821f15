"""Where requests go: what the node answers for itself when the cloud is gone, and what it never does."""

from __future__ import annotations

import pytest

from addons.caller import Caller, Lending, Listener
from addons.routing import Kind, decide
from addons.rule_table import parse_rules
from kube.request import parse_request

RULES = parse_rules(None)
NODE = Caller(Lending.HUB)


def kind(
    method: str,
    target: str,
    component: str = "kubelet",
    caller: Caller = NODE,
    listener: Listener = Listener.PLAIN,
    keeps: bool = True,
    is_upgrade: bool = False,
    is_up: bool = True,
) -> Kind:
    info = parse_request(method, target)
    asked = (info, component, caller, listener, "application/json", RULES)
    return decide(*asked, is_upgrade=is_upgrade, keeps=keeps, is_up=is_up).kind


@pytest.mark.parametrize(
    ("method", "target", "wanted"),
    [
        ("GET", "/api/v1/nodes/n", Kind.RELAY),
        ("GET", "/api/v1/secrets", Kind.BACKED),
        ("GET", "/api/v1/secrets?resourceVersion=0", Kind.VIEW),
        ("GET", "/api/v1/secrets?watch=1&resourceVersion=5", Kind.VIEW),
        ("GET", "/api/v1/namespaces/a/pods/p/log", Kind.RELAY),
        ("GET", "/version", Kind.BACKED),
        ("GET", "/apis/apps/v1", Kind.BACKED),
        ("GET", "/openapi/v3/api/v1", Kind.BACKED),
        ("GET", "/metrics", Kind.RELAY),
        ("POST", "/api/v1/namespaces/a/secrets", Kind.RELAY),
    ],
)
def test_a_cached_component(method: str, target: str, wanted: Kind) -> None:
    assert kind(method, target) is wanted


def test_a_single_object_takes_the_longer_way_only_when_the_cloud_is_gone() -> None:
    assert kind("GET", "/api/v1/nodes/n", is_up=True) is Kind.RELAY
    assert kind("GET", "/api/v1/nodes/n", is_up=False) is Kind.BACKED
    assert kind("PUT", "/api/v1/nodes/n", is_up=False) is Kind.RELAY


def test_who_is_never_answered_by_the_node() -> None:
    target = "/api/v1/nodes"
    assert kind("GET", target, component="stranger") is Kind.RELAY
    assert kind("GET", target, caller=Caller(Lending.NONE)) is Kind.RELAY
    assert kind("GET", target, caller=Caller(Lending.OWN, "Bearer x", impersonates=True)) is Kind.RELAY
    assert kind("GET", target, listener=Listener.INTERNAL) is Kind.RELAY
    assert kind("GET", target, keeps=False) is Kind.RELAY
    assert kind("GET", target, is_upgrade=True) is Kind.RELAY
