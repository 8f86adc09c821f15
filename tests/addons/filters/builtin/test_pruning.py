"""Endpoints and EndpointSlices (v1, v1beta1) lose the same endpoints by the same rule."""

from __future__ import annotations

import pytest

from addons.filters.builtin.pruning import prune
from addons.filters.builtin.topology import NodeRule
from addons.filters.verdict import ignore_note
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import (
    Sample,
    addresses_of,
    decode_again,
    endpoint,
    endpoint_slice,
    endpoints,
    old_endpoint,
    subset,
)

ON_N1 = NodeRule("same-node", "n1".__eq__, lambda node: f"node {node or '?'} against n1")

V1 = endpoint_slice([endpoint("10.0.0.1", "n1"), endpoint("10.0.0.2", "n2"), endpoint("10.0.0.3", None)])
V1BETA1 = endpoint_slice(
    [
        old_endpoint("10.0.0.1", "n1"),
        old_endpoint("10.0.0.2", None, node="n1"),
        old_endpoint("10.0.0.3", "n2", node="n1"),
        old_endpoint("10.0.0.4", None),
    ],
    version="v1beta1",
)
SUBSETS = endpoints(
    subset({"10.0.0.1": "n1", "10.0.0.2": "n2"}, {"10.0.0.3": "n1", "10.0.0.4": None}),
    subset({"10.0.1.1": "n2"}, {"10.0.1.2": "n3"}),
    subset({}, {"10.0.2.1": "n1"}),
)


@pytest.mark.parametrize(
    ("sample", "removed", "left"),
    [
        (V1, 2, ["10.0.0.1"]),
        (V1BETA1, 2, ["10.0.0.1", "10.0.0.2"]),
        # Dropped: three addresses, one subset that became empty, and that subset's two addresses.
        (SUBSETS, 5, ["10.0.0.1", "10.0.0.3", "10.0.2.1"]),
        (endpoint_slice([]), 0, []),
        (endpoints(), 0, []),
        (endpoints(subset({}, {})), 1, []),
    ],
    ids=["v1", "v1beta1", "subsets", "empty-slice", "no-subsets", "empty-subset"],
)
def test_endpoints_that_the_rule_excludes_are_removed(
    encoding: Encoding, sample: Sample, removed: int, left: list[str]
) -> None:
    obj = sample.build(encoding)
    assert prune(obj, ON_N1, ignore_note) == removed
    assert addresses_of(decode_again(obj)) == left


def test_a_slice_without_endpoints_retains_its_ports(encoding: Encoding) -> None:
    obj = endpoint_slice([endpoint("10.0.0.2", "n2")]).build(encoding)
    assert prune(obj, ON_N1, ignore_note) == 1
    emptied = decode_again(obj)
    assert addresses_of(emptied) == []
    assert [port.number("port") for port in emptied.fields.children("ports")] == [8080]
