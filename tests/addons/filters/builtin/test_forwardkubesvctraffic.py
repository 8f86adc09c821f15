"""forwardkubesvctraffic: the slices of default/kubernetes point at the hub."""

from __future__ import annotations

from typing import Any

import pytest

from addons.filters.builtin.forwardkubesvctraffic import ForwardKubeSvcTraffic
from addons.filters.inputs import HubAddress
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import Sample, World, addresses_of, endpoint, endpoint_slice

HTTPS = {"name": "https", "protocol": "TCP", "port": 6443}
METRICS = {"name": "metrics", "protocol": "TCP", "port": 9}
CLOUD = [endpoint("192.0.2.1", None), endpoint("192.0.2.2", "master-2", ready=False)]


def kubernetes(name: str = "kubernetes", service_name: str | None = "kubernetes", **more: Any) -> Sample:
    return endpoint_slice(
        CLOUD, **{"name": name, "service_name": service_name, "ports": [METRICS, HTTPS]} | more
    )


HUB_S = endpoint_slice(
    [endpoint("169.254.2.1", None)],
    name="kubernetes",
    service_name="kubernetes",
    ports=[HTTPS | {"port": 10268}],
)

CASES = [
    Case("by name", kubernetes(service_name=None), "changed", "hub-address"),
    Case("by label", kubernetes(name="kubernetes-v6", family="IPv6"), "changed", "hub-address"),
    Case("v1beta1", kubernetes(version="v1beta1"), "changed", "hub-address"),
    Case("points at the hub already", HUB_S, "kept", "hub-address"),
    Case(
        "other family",
        kubernetes(family="IPv6"),
        "kept",
        "no-hub-address",
        World(hub=HubAddress(("10.0.0.1",), 1)),
    ),
    Case("names for addresses", kubernetes(family="FQDN"), "kept", "no-hub-address"),
    Case("no port https", kubernetes(ports=[METRICS]), "kept", "no-https-port"),
    Case("neither name nor label", kubernetes("kubernetes-v6", None), "kept", "other-slice"),
    Case("another Service's", endpoint_slice(CLOUD, ports=[HTTPS]), "kept", "other-slice"),
]


@pytest.mark.parametrize("case", named(CASES))
def test_only_slices_of_the_kubernetes_service_are_changed(encoding: Encoding, case: Case) -> None:
    case.check(ForwardKubeSvcTraffic(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == ForwardKubeSvcTraffic.reasons


@pytest.mark.parametrize(("family", "address"), [("IPv4", "169.254.2.1"), ("IPv6", "fd00::2:1")])
def test_the_hub_becomes_the_only_endpoint_and_is_ready(
    encoding: Encoding, family: str, address: str
) -> None:
    changed = apply(ForwardKubeSvcTraffic(), kubernetes(family=family), World(), encoding).obj
    assert addresses_of(changed) == [address]
    only = changed.fields.children("endpoints")[0]
    assert only.child("conditions").flag("ready") is True
    assert only.text("nodeName") == ""
    ports = [(port.text("name"), port.number("port")) for port in changed.fields.children("ports")]
    assert ports == [("metrics", 9), ("https", 10268)]


def test_the_note_names_the_hubs_address(encoding: Encoding) -> None:
    notes = apply(ForwardKubeSvcTraffic(), kubernetes(), World(), encoding).notes
    assert notes == [("EndpointSlice default/kubernetes", "changed", "points at 169.254.2.1 port 10268")]
