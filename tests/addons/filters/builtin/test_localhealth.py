"""localhealth: endpoints on nodes that the local health server calls unhealthy are dropped."""

from __future__ import annotations

import pytest

from addons.filters.builtin.localhealth import LocalHealth
from addons.filters.builtin.pruning import MAX_ENDPOINTS
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, named, reasons_of
from tests.addons.filters.support.samples import (
    WEB,
    World,
    addresses_of,
    endpoint,
    endpoint_slice,
    endpoints,
    old_endpoint,
    subset,
)

SICK = World(services={WEB: {}}, unhealthy=frozenset({"n2"}))
FOUR = [
    endpoint("10.0.0.1", "n1"),
    endpoint("10.0.0.2", "n2"),
    endpoint("10.0.0.3", "n3"),
    endpoint("10.0.0.4", None),
]

CHANGED = [
    # The filter asks once for two endpoints of one node.
    Case("slice", endpoint_slice([*FOUR, endpoint("10.0.0.5", "n2")]), "changed", "unhealthy-node", SICK),
    Case(
        "old slice",
        endpoint_slice(
            [old_endpoint(f"10.0.0.{n}", node) for n, node in enumerate(("n1", "n2", "n3", None), 1)],
            version="v1beta1",
        ),
        "changed",
        "unhealthy-node",
        SICK,
    ),
    Case(
        "Endpoints",
        endpoints(subset({"10.0.0.1": "n1", "10.0.0.2": "n2", "10.0.0.3": "n3", "10.0.0.4": None})),
        "changed",
        "unhealthy-node",
        SICK,
    ),
]
UNCHANGED = [
    Case("nobody is called unhealthy", endpoint_slice(FOUR), "kept", "all-healthy"),
    Case(
        "default/kubernetes",
        endpoint_slice(FOUR, "kubernetes", "kubernetes"),
        "kept",
        "kubernetes-service",
        SICK,
    ),
    Case(
        "many endpoints", endpoint_slice([FOUR[1]] * (MAX_ENDPOINTS + 1)), "kept", "too-many-endpoints", SICK
    ),
]


@pytest.mark.parametrize("case", named(CHANGED))
def test_endpoints_of_unhealthy_nodes_are_dropped(case: Case, encoding: Encoding) -> None:
    applied = case.check(LocalHealth(), encoding)
    # An endpoint without a node name stays: local health is known by node name only.
    assert addresses_of(applied.obj) == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
    said = {subject: reason for subject, _, reason in applied.notes}
    assert said["10.0.0.2"] == "node n2 is called unhealthy by local health"


@pytest.mark.parametrize("case", named(UNCHANGED))
def test_endpoints_without_local_health_stay(case: Case, encoding: Encoding) -> None:
    case.check(LocalHealth(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CHANGED, UNCHANGED) == LocalHealth.reasons
