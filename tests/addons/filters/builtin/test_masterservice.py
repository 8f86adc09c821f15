"""masterservice: the Service default/kubernetes gets the hub's address of each IP family."""

from __future__ import annotations

from typing import Any

import pytest

from addons.filters.builtin.masterservice import MasterService
from addons.filters.inputs import HubAddress
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import Sample, World, service

PORTS = ({"name": "metrics", "port": 9}, {"name": "https", "port": 443, "protocol": "TCP"})
V4, V6 = "169.254.2.1", "fd00::2:1"


def kubernetes(**spec: Any) -> Sample:
    return service("kubernetes", ports=PORTS, **spec)


SINGLE = kubernetes(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1"], ipFamilies=["IPv4"])
DUAL = kubernetes(clusterIP="fd01::1", clusterIPs=["fd01::1", "10.96.0.1"], ipFamilies=["IPv6", "IPv4"])
ONLY_V4, ONLY_V6 = World(hub=HubAddress((V4,), 10268)), World(hub=HubAddress((V6,), 10268))
HUB_S = service(
    "kubernetes", ports=[{"name": "https", "port": 10268}], clusterIP=V4, clusterIPs=[V4], ipFamilies=["IPv4"]
)

CASES = [
    Case("one family", SINGLE, "changed", "hub-address"),
    Case("two families", DUAL, "changed", "hub-address"),
    Case("points at the hub already", HUB_S, "kept", "hub-address"),
    Case("the hub has no address of its family", SINGLE, "kept", "no-hub-address", ONLY_V6),
    Case("the hub has no address", DUAL, "kept", "no-hub-address", World(hub=HubAddress((), 10268))),
    Case("no cluster IP", kubernetes(), "kept", "no-hub-address"),
    Case("another Service", service("web", clusterIP="10.96.0.2"), "kept", "other-service"),
    Case(
        "of another namespace", service("kubernetes", "prod", clusterIP="10.96.0.2"), "kept", "other-service"
    ),
]


@pytest.mark.parametrize("case", named(CASES))
def test_only_the_kubernetes_service_is_changed(encoding: Encoding, case: Case) -> None:
    case.check(MasterService(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == MasterService.reasons


@pytest.mark.parametrize(
    ("sample", "world", "ips", "families"),
    [
        (SINGLE, World(), [V4], ["IPv4"]),
        (DUAL, World(), [V6, V4], ["IPv6", "IPv4"]),
        (DUAL, ONLY_V4, [V4], ["IPv4"]),
        (DUAL, ONLY_V6, [V6], ["IPv6"]),
        # Without ipFamilies or clusterIPs, as in old objects, the addresses show the families.
        (kubernetes(clusterIP="fd01::1", clusterIPs=["fd01::1", "10.96.0.1"]), World(), [V6, V4], []),
        (kubernetes(clusterIP="10.96.0.1"), World(), [V4], []),
    ],
)
def test_each_ip_family_gets_the_hubs_address_of_that_family(
    encoding: Encoding, sample: Sample, world: World, ips: list[str], families: list[str]
) -> None:
    spec = apply(MasterService(), sample, world, encoding).obj.fields.child("spec")
    assert (spec.text("clusterIP"), spec.texts("clusterIPs"), spec.texts("ipFamilies")) == (
        ips[0],
        ips,
        families,
    )


def test_only_the_port_named_https_changes(encoding: Encoding) -> None:
    spec = apply(MasterService(), SINGLE, World(), encoding).obj.fields.child("spec")
    ports = [(port.text("name"), port.number("port")) for port in spec.children("ports")]
    assert ports == [("metrics", 9), ("https", 10268)]


def test_a_service_without_a_port_named_https_gets_the_address(encoding: Encoding) -> None:
    sample = service("kubernetes", clusterIP="10.96.0.1")
    applied = apply(MasterService(), sample, World(), encoding)
    assert applied.obj.fields.child("spec").text("clusterIP") == V4


def test_the_note_names_the_hubs_address(encoding: Encoding) -> None:
    notes = apply(MasterService(), DUAL, World(), encoding).notes
    assert notes == [("Service default/kubernetes", "changed", f"points at {V6}, {V4} port 10268")]
