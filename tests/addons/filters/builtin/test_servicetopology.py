"""servicetopology: both annotations, on Endpoints and EndpointSlices, and each missing input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.pruning import MAX_ENDPOINTS
from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.builtin.topology import Order
from kube.requests.node_pools import POOL_LABEL
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import Applied, Case, apply, named, reasons_of
from tests.addons.filters.support.samples import (
    WEB,
    Sample,
    World,
    addresses_of,
    endpoint,
    endpoint_slice,
    endpoints,
    old_endpoint,
    pooled_world,
    subset,
)

OPENYURT, SUPEREDGE = "openyurt.io/topologyKeys", "topologyKeys"

NODE = {OPENYURT: "kubernetes.io/hostname"}
POOL = {OPENYURT: "openyurt.io/nodepool"}
ZONE = {OPENYURT: "kubernetes.io/zone"}

# n1 is this node; n1 and n2 are in pool p1, n3 in p2, n4 in none; z is shared by n1 and n3, y by n1 and n4.
SLICE = endpoint_slice(
    [
        *(endpoint(f"10.0.0.{number}", f"n{number}") for number in (1, 2, 3, 4)),
        endpoint("10.0.0.5", None),
        endpoint("10.0.0.6", "gone"),
    ]
)
OLD_SLICE = endpoint_slice([old_endpoint(f"10.0.0.{n}", f"n{n}") for n in (1, 2, 3, 4)], version="v1beta1")
ENDPOINTS = endpoints(
    subset({"10.0.0.1": "n1", "10.0.0.3": "n3", "10.0.0.5": None}, {"10.0.0.2": "n2", "10.0.0.4": "n4"}),
    subset({"10.0.0.6": "gone"}),
)


def world(annotations: dict[str, str]) -> World:
    found = pooled_world(annotations)
    found.nodes["n1"] |= {"z": "1", "y": "a", "e": ""}
    found.nodes["n2"] |= {"z": "2"}
    found.nodes["n3"] |= {"z": "1"}
    found.nodes["n4"] |= {"z": "2", "y": "a", "e": ""}
    return found


def keys(text: str, **more: str) -> dict[str, str]:
    return {SUPEREDGE: text, **more}


def row(
    name: str,
    sample: Sample,
    reason: str,
    annotations: dict[str, str],
    *left: int,
    outcome: str = "changed",
    **inputs: Any,
) -> tuple[Case, list[int]]:
    """Return a case and the numbers of the endpoints that remain; `inputs` replace those of the default world."""
    return Case(name, sample, outcome, reason, replace(world(annotations), **inputs)), list(left)


FILTERED = [
    row("node", SLICE, "same-node", NODE, 1),
    row("node, v1beta1", OLD_SLICE, "same-node", NODE, 1),
    row("node, endpoints", ENDPOINTS, "same-node", NODE, 1),
    row("pool", SLICE, "same-pool", POOL, 1, 2),
    row("zone is the pool", SLICE, "same-pool", ZONE, 1, 2),
    row("pool, v1beta1", OLD_SLICE, "same-pool", POOL, 1, 2),
    row("pool, endpoints", ENDPOINTS, "same-pool", POOL, 1, 2),
    row("a pool without nodes", SLICE, "same-pool", POOL, pools={"p1": frozenset()}),
    row("keys", SLICE, "same-key", keys('["z"]'), 1, 3),
    row("keys, v1beta1", OLD_SLICE, "same-key", keys('["z"]'), 1, 3),
    row("keys, endpoints", ENDPOINTS, "same-key", keys('["z"]'), 1, 3),
    row("any of several keys", SLICE, "same-key", keys('["z", "y"]'), 1, 3, 4),
    row("a star before the end", SLICE, "same-key", keys('["*", "z"]'), 1, 3),
    row("labels without a value", SLICE, "same-key", keys('["e"]'), 1, 4),
    row("a key this node lacks", SLICE, "no-own-label", keys('["x"]')),
    row("an unknown own node", SLICE, "no-own-node", keys('["z"]'), nodes={}),
    row("the first key wins", SLICE, "preferred-key", keys('["y", "z", "*"]'), 1, 4),
    row("no key wins", SLICE, "any-endpoint", keys('["x", "*"]'), 1, 2, 3, 4, 5, 6, outcome="kept"),
    row("both", SLICE, "both-topologies", keys('["z"]', **POOL), 1),
    row("keys without a pool", SLICE, "no-pool", keys('["z"]', **POOL), 1, 3, pool=""),
    row("pool and bad keys", SLICE, "bad-topology-keys", keys("z", **POOL), 1, 2),
    row("keys and an unknown word", SLICE, "unknown-topology", keys('["z"]', **{OPENYURT: "?"}), 1, 3),
]

ALL_IN_POOL = endpoint_slice([endpoint("10.0.0.1", "n1"), endpoint("10.0.0.2", "n2")])
UNFILTERED = [
    Case("nothing to remove", ALL_IN_POOL, "kept", "same-pool", world(POOL)),
    Case("nothing in it", endpoint_slice([]), "kept", "same-pool", world(POOL)),
    Case("no subsets in it", endpoints(), "kept", "same-pool", world(POOL)),
    Case(
        "many addresses",
        endpoints(subset({f"10.0.{n >> 8}.{n & 255}": "n9" for n in range(MAX_ENDPOINTS)})),
        "kept",
        "too-many-endpoints",
        world(NODE),
    ),
    Case(
        "no label",
        endpoint_slice([endpoint("10.0.0.3", "n3")], service_name=None),
        "kept",
        "no-service-label",
    ),
    Case("no Service", SLICE, "kept", "no-service", replace(world(POOL), services={})),
    Case("no Service, endpoints", ENDPOINTS, "kept", "no-service", replace(world(POOL), services={})),
    Case(
        "another namespace's Service",
        SLICE,
        "kept",
        "no-service",
        World(services={("kube-system", "web"): POOL}),
    ),
    Case("no annotation", SLICE, "kept", "no-topology", world({})),
    Case("no keys", SLICE, "kept", "no-topology", world(keys("[]"))),
    Case(
        "an unknown word", SLICE, "kept", "unknown-topology", world({OPENYURT: "topology.kubernetes.io/zone"})
    ),
    Case("keys that are no JSON", SLICE, "kept", "bad-topology-keys", world(keys("zone1"))),
    Case("in no pool", SLICE, "kept", "no-pool", replace(world(POOL), pool="")),
    Case("no such pool", SLICE, "kept", "no-such-pool", replace(world(POOL), pools={})),
]


def left(applied: Applied) -> list[int]:
    return sorted(int(address.rpartition(".")[2]) for address in addresses_of(applied.obj))


@pytest.mark.parametrize(
    ("case", "numbers"), [pytest.param(c, n, id=c.name.replace(" ", "-")) for c, n in FILTERED]
)
def test_endpoints_outside_the_topology_are_removed(
    encoding: Encoding, case: Case, numbers: list[int]
) -> None:
    assert left(case.check(ServiceTopology(), encoding)) == numbers


@pytest.mark.parametrize("case", named(UNFILTERED))
def test_a_missing_input_restricts_nothing(encoding: Encoding, case: Case) -> None:
    case.check(ServiceTopology(), encoding)


def slice_on(*nodes: str) -> Sample:
    """Return a slice with a ready endpoint on each of these nodes."""
    return endpoint_slice([endpoint(f"10.0.0.{node[1:]}", node) for node in nodes])


UNREADY = endpoint_slice([endpoint("10.0.0.3", "n3", ready=False), endpoint("10.0.0.4", "n4", ready=None)])
UNREADY_IN_ENDPOINTS = endpoints(subset({"10.0.0.4": "n4"}, {"10.0.0.3": "n3"}))
OF_BOTH = {WEB: frozenset({"n2", "n3", "n4"})}
ZY, Z_OR_ANY = keys('["z", "y"]'), keys('["z", "*"]')
ORDERED = [
    row("first key", SLICE, "preferred-key", ZY, 1, 3),
    row("a key without a ready endpoint is passed over", UNREADY, "preferred-key", ZY, 4),
    row("the same in endpoints", UNREADY_IN_ENDPOINTS, "preferred-key", ZY, 4),
    row("no key leaves a ready endpoint", slice_on("n2"), "no-preferred", ZY),
    # n3 has z, but is outside the pool: keys are matched on n1 and n2 alone.
    row(
        "a key is won among what the pool leaves", slice_on("n2", "n3"), "both-topologies", Z_OR_ANY | POOL, 2
    ),
    # Another slice of the Service has endpoints on z, this one has none: the other's endpoints are preferred.
    row("a key is won in another slice", slice_on("n2", "n4"), "preferred-key", Z_OR_ANY, ready=OF_BOTH),
]


@pytest.mark.parametrize(
    ("case", "numbers"), [pytest.param(c, n, id=c.name.replace(" ", "-")) for c, n in ORDERED]
)
def test_the_first_topology_key_with_endpoints_is_used_in_preferred_order(
    encoding: Encoding, case: Case, numbers: list[int]
) -> None:
    assert left(case.check(ServiceTopology(Order.PREFERRED), encoding)) == numbers


def test_the_cases_cover_every_reason() -> None:
    tables = [c for c, _ in FILTERED], UNFILTERED, [c for c, _ in ORDERED]
    assert reasons_of(*tables) == ServiceTopology.reasons


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({}, []),
        (NODE, []),
        (POOL, [("own_pool",), ("pool_nodes", "p1")]),
        (keys('["x"]'), [("node_labels", "n1")]),
        (keys('["z"]'), [("node_labels", node) for node in ("n1", "n2", "n3", "n4", "gone")]),
        (keys('["*"]'), []),
        (keys('["x", "*"]'), [("node_labels", "n1")]),
    ],
)
def test_inputs_that_do_not_decide_are_not_read(
    encoding: Encoding, annotations: dict[str, str], asked: list[tuple[str, ...]]
) -> None:
    applied = apply(ServiceTopology(), SLICE, world(annotations), encoding)
    assert applied.asked == [("service", "default", "web"), *asked]


def test_only_slices_of_the_same_family_prefer_a_key(encoding: Encoding) -> None:
    asked = apply(ServiceTopology(), SLICE, world(Z_OR_ANY), encoding).asked
    assert ("ready_nodes", *WEB, "IPv4") in asked


def test_the_note_explains_a_removed_endpoint(encoding: Encoding) -> None:
    assert apply(ServiceTopology(), SLICE, world(POOL), encoding).notes[:3] == [
        ("10.0.0.1", "kept", "node n1 is in node pool p1, as this node is"),
        ("10.0.0.2", "kept", "node n2 is in node pool p1, as this node is"),
        ("10.0.0.3", "dropped", f"node n3 has {POOL_LABEL}=p2, this node p1"),
    ]


@pytest.mark.parametrize(
    ("sample", "inputs", "note"),
    [
        (SLICE, World(), ("EndpointSlice default/web-abc", "kept", "its Service is not known")),
        (
            endpoint_slice([], service_name=None),
            World(),
            ("EndpointSlice default/web-abc", "kept", "it has no label kubernetes.io/service-name"),
        ),
        (SLICE, world({}), ("service default/web", "kept", "it has no topology annotation")),
        (
            ENDPOINTS,
            replace(world(POOL), pool=""),
            ("service default/web", "kept", "it asks for this node's pool, and this node is in none"),
        ),
    ],
)
def test_the_note_explains_why_nothing_is_filtered(
    encoding: Encoding, sample: Sample, inputs: World, note: tuple[str, str, str]
) -> None:
    assert apply(ServiceTopology(), sample, inputs, encoding).notes == [note]


placed = st.lists(st.sampled_from(["n1", "n2", "n3", "n4", "gone", None]), max_size=8)
topologies = st.fixed_dictionaries(
    {},
    optional={
        OPENYURT: st.sampled_from([*NODE.values(), *POOL.values(), *ZONE.values(), "?"]),
        SUPEREDGE: st.sampled_from(['["z"]', '["y", "z"]', '["z", "*"]', '["x"]', "[]", "z"]),
    },
)


@given(
    nodes=placed,
    annotations=topologies,
    order=st.sampled_from(Order),
    pool=st.sampled_from(["", "p1", "p2", "p9"]),
    shape=st.sampled_from(["v1", "v1beta1", "endpoints"]),
    encoding=st.sampled_from(Encoding),
)
def test_the_filter_only_removes_endpoints_and_retains_their_order(
    nodes: list[str | None],
    annotations: dict[str, str],
    order: Order,
    pool: str,
    shape: str,
    encoding: Encoding,
) -> None:
    numbered = {f"10.0.0.{number}": node for number, node in enumerate(nodes)}
    if shape == "endpoints":
        half = len(nodes) // 2
        parts = list(numbered.items())
        sample = endpoints(subset(dict(parts[:half]), dict(parts[half:])))
    elif shape == "v1":
        sample = endpoint_slice([endpoint(address, node) for address, node in numbered.items()])
    else:
        sample = endpoint_slice([old_endpoint(a, node) for a, node in numbered.items()], version=shape)
    applied = apply(ServiceTopology(order), sample, replace(world(annotations), pool=pool), encoding)
    remaining = addresses_of(applied.obj)
    assert remaining == [address for address in numbered if address in remaining]
    assert applied.verdict.reason in ServiceTopology.reasons
