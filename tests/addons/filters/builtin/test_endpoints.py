"""endpoints: only addresses in this node's pool remain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.endpoints import EndpointsInPool
from addons.filters.builtin.pruning import MAX_ENDPOINTS
from kube.requests.node_pools import POOL_LABEL
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Case, apply, named, reasons_of
from tests.addons.filters.support.samples import WEB, addresses_of, endpoints, pooled_world, subset

WORLD = pooled_world({})
MIXED = endpoints(
    subset({"10.0.0.1": "n1", "10.0.0.3": "n3", "10.0.0.5": None}, {"10.0.0.2": "n2", "10.0.0.4": "n4"}),
    subset({"10.0.0.6": "n3"}, {"10.0.0.7": "gone"}),
)
ELSEWHERE = endpoints(subset({"10.0.0.3": "n3"}))

CASES = [
    Case("this pool", MIXED, "changed", "same-pool", WORLD),
    Case("nothing of this pool", ELSEWHERE, "changed", "same-pool", WORLD),
    Case(
        "all of this pool",
        endpoints(subset({"10.0.0.1": "n1"}, {"10.0.0.2": "n2"})),
        "kept",
        "same-pool",
        WORLD,
    ),
    Case("no Service", MIXED, "kept", "no-service", replace(WORLD, services={})),
    Case("in no pool", MIXED, "kept", "no-pool", replace(WORLD, pool="")),
    Case("no such pool", MIXED, "kept", "no-such-pool", replace(WORLD, pool="p9")),
    Case("many subsets", endpoints(*[{}] * (MAX_ENDPOINTS + 1)), "kept", "too-many-endpoints", WORLD),
]


@pytest.mark.parametrize("case", named(CASES))
def test_addresses_outside_this_pool_are_dropped(encoding: Encoding, case: Case) -> None:
    case.check(EndpointsInPool(), encoding)


def test_the_cases_cover_every_reason() -> None:
    assert reasons_of(CASES) == EndpointsInPool.reasons


def test_a_services_topology_annotation_is_ignored(encoding: Encoding) -> None:
    annotated = replace(WORLD, services={WEB: {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}})
    assert addresses_of(apply(EndpointsInPool(), MIXED, annotated, encoding).obj) == ["10.0.0.1", "10.0.0.2"]


def test_the_note_names_the_pool_of_a_dropped_address(encoding: Encoding) -> None:
    notes = apply(EndpointsInPool(), ELSEWHERE, WORLD, encoding).notes
    assert notes == [("10.0.0.3", "dropped", f"node n3 has {POOL_LABEL}=p2, this node p1")]


@given(
    ready=st.lists(st.sampled_from(["n1", "n2", "n3", None]), max_size=5),
    not_ready=st.lists(st.sampled_from(["n1", "n2", "n3", None]), max_size=5),
    encoding=st.sampled_from(Encoding),
)
def test_endpoints_of_nodes_outside_the_pool_are_dropped(
    ready: list[str | None], not_ready: list[str | None], encoding: Encoding
) -> None:
    ups = {f"10.0.0.{number}": node for number, node in enumerate(ready)}
    downs = {f"10.0.1.{number}": node for number, node in enumerate(not_ready)}
    applied = apply(EndpointsInPool(), endpoints(subset(ups, downs)), WORLD, encoding)
    mine = [address for address, node in (ups | downs).items() if node in ("n1", "n2")]
    assert addresses_of(applied.obj) == mine
