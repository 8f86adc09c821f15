"""The code that two filters share: both lead clients of default/kubernetes to the hub."""

from __future__ import annotations

import pytest

from addons.filters.builtin.kubernetesservice import https_port, is_kubernetes, is_slice_of_kubernetes
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import endpoint_slice, service

PORTS = ({"name": "metrics", "port": 1}, {"name": "https", "port": 443}, {"name": "https", "port": 2})


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [("kubernetes", "default", True), ("kubernetes", "kube-system", False), ("web", "default", False)],
)
def test_the_service_by_name(encoding: Encoding, name: str, namespace: str, expected: bool) -> None:
    assert is_kubernetes(service(name, namespace).build(encoding)) is expected


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
