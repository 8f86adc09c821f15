"""The code that two filters share: both lead clients of default/kubernetes to the hub."""

from __future__ import annotations

import pytest

from addons.filters.builtin.kubernetesservice import (
    https_port,
    is_kubernetes,
    is_slice_of_kubernetes,
    say_address,
    write_number,
    write_texts,
)
from addons.filters.verdict import ignore_note
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import Notes, endpoint_slice, endpoints, service

PORTS = ({"name": "metrics", "port": 1}, {"name": "https", "port": 443}, {"name": "https", "port": 2})


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [("kubernetes", "default", True), ("kubernetes", "kube-system", False), ("web", "default", False)],
)
def test_the_service_by_name(encoding: Encoding, name: str, namespace: str, expected: bool) -> None:
    assert is_kubernetes(service(name, namespace).build(encoding)) is expected


def test_its_endpoints_have_its_name(encoding: Encoding) -> None:
    assert is_kubernetes(endpoints(name="kubernetes").build(encoding))


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("kubernetes", "kubernetes", True),
        ("kubernetes", None, True),
        ("kubernetes-v6", "kubernetes", True),
        ("kubernetes-v6", None, False),
        ("web-abc", "web", False),
    ],
)
def test_its_slices_by_name_or_label(
    encoding: Encoding, name: str, label: str | None, expected: bool
) -> None:
    assert (
        is_slice_of_kubernetes(endpoint_slice([], name=name, service_name=label).build(encoding)) is expected
    )


def test_the_first_port_named_https(encoding: Encoding) -> None:
    spec = service(ports=PORTS).build(encoding).fields.child("spec")
    port = https_port(spec)
    assert port is not None
    assert port.number("port") == 443
    assert https_port(service().build(encoding).fields.child("spec")) is None


def test_equal_values_are_not_written(encoding: Encoding) -> None:
    obj = service(ports=PORTS, clusterIPs=["10.0.0.1"]).build(encoding)
    before, spec = obj.encode(), obj.fields.child("spec")
    port = https_port(spec)
    assert port is not None
    assert not write_number(port, "port", 443)
    assert not write_texts(spec, "clusterIPs", ["10.0.0.1"])
    assert obj.encode() == before
    assert write_number(port, "port", 10268)
    assert write_texts(spec, "clusterIPs", ["10.0.0.1", "fd00::1"])
    assert (port.number("port"), spec.texts("clusterIPs")) == (10268, ["10.0.0.1", "fd00::1"])


@pytest.mark.parametrize(("differs", "outcome"), [(True, "changed"), (False, "kept")])
def test_where_it_points_is_told(encoding: Encoding, differs: bool, outcome: str) -> None:
    obj, notes = service("kubernetes").build(encoding), Notes()
    say_address(ignore_note, obj, differs, "nobody listens")
    say_address(notes, obj, differs, "10.0.0.1 port 10268")
    assert notes.lines == [("Service default/kubernetes", outcome, "points at 10.0.0.1 port 10268")]
