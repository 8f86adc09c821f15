"""What the filters promise as a set; what each does is tested beside it."""

from __future__ import annotations

import pytest

from addons.filters.chain import FILTERS, build_filters
from addons.filters.filter import CONFIG_MAPS, ENDPOINT_SLICES, ENDPOINTS, PODS, READS, SERVICES, Filter
from kube.requests.component import component_of
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import apply
from tests.addons.filters.support.samples import Sample, World

EACH = pytest.mark.parametrize("filter_", FILTERS, ids=lambda filter_: filter_.name)
KINDS = {
    SERVICES: "Service",
    ENDPOINTS: "Endpoints",
    ENDPOINT_SLICES: "EndpointSlice",
    CONFIG_MAPS: "ConfigMap",
    PODS: "Pod",
}


@EACH
def test_its_name_and_its_defaults_can_be_written_in_a_rule(filter_: Filter) -> None:
    assert filter_.name.isascii()
    assert filter_.name.isalpha()
    assert filter_.name.islower()
    assert filter_.verbs
    assert filter_.verbs <= READS
    assert all(component_of(component) == component for component in filter_.components)


@EACH
def test_its_reasons_can_be_labels_of_a_metric(filter_: Filter) -> None:
    assert all(reason.replace("-", "").isalpha() and reason.islower() for reason in filter_.reasons)


@EACH
def test_it_keeps_an_object_of_another_kind(filter_: Filter, encoding: Encoding) -> None:
    lease = Sample(
        "coordination.k8s.io/v1", "Lease", {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}
    )
    assert apply(filter_, lease, World(), encoding).said() == ("kept", "other-kind")


@EACH
def test_it_keeps_an_object_that_says_nothing(filter_: Filter, encoding: Encoding) -> None:
    for resource in filter_.resources:
        group, _ = resource
        nothing = Sample(f"{group}/v1" if group else "v1", KINDS[resource], {"metadata": {}})
        applied = apply(filter_, nothing, World(), encoding)
        assert applied.said()[0] == "kept"
        assert applied.said()[1] != "other-kind"


GARBAGE: list[object] = [
    None,
    7,
    "x",
    [7],
    [None],
    {"a": 7},
    [{"addresses": 7, "conditions": "x", "env": 3}],
    [["x"]],
]


@EACH
@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_it_keeps_json_whose_fields_have_the_wrong_types(filter_: Filter, garbage: object) -> None:
    fields = ("spec", "endpoints", "subsets", "ports", "data", "addressType")
    for resource in filter_.resources:
        group, _ = resource
        content = dict.fromkeys(fields, garbage) | {"metadata": {"name": "web", "namespace": "default"}}
        odd = Sample(f"{group}/v1" if group else "v1", KINDS[resource], content)
        assert apply(filter_, odd, World({"default/web": {}}), Encoding.JSON).said()[0] == "kept"


def test_filters_with_the_same_settings_are_equal() -> None:
    assert build_filters() == FILTERS
    assert len(set(FILTERS)) == len(FILTERS)
