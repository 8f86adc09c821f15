"""What the filters promise as a set, their order, what breaks when it is another, and the first drop."""

from __future__ import annotations

import pytest

from addons.filters.builtin.localendpoint import LocalEndpoint
from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.builtin.topology import Order
from addons.filters.chain import FILTERS, ChainVerdict, apply_chain, build_filters
from addons.filters.filter import CONFIG_MAPS, ENDPOINT_SLICES, ENDPOINTS, PODS, READS, SERVICES, Filter
from addons.filters.inputs import HubAddress
from addons.filters.verdict import Outcome, dropped
from kube.requests.component import component_of
from kube.wire.encoding import Encoding
from tests.addons.filters.support.checks import apply
from tests.addons.filters.support.samples import (
    WEB,
    Notes,
    Sample,
    World,
    addresses_of,
    decode_again,
    endpoint,
    endpoint_slice,
    endpoints,
    service,
    subset,
)

NAMES = [filter_.name for filter_ in FILTERS]
HTTPS = {"name": "https", "protocol": "TCP", "port": 6443}


def run(names: list[str], sample: Sample, world: World, encoding: Encoding) -> tuple[ChainVerdict, list[str]]:
    """The chain of these filters in this order, and the addresses that are left."""
    chain = [each for name in names for each in FILTERS if each.name == name]
    obj = sample.build(encoding)
    verdict = apply_chain(chain, obj, world)
    return verdict, addresses_of(decode_again(obj))


def test_the_order_is_fixed() -> None:
    assert NAMES == [
        "discardcloudservice",
        "nodeportisolation",
        "masterservice",
        "localpods",
        "servicetopology",
        "endpoints",
        "forwardkubesvctraffic",
        "localendpoint",
        "inclusterconfig",
        "serviceenvupdater",
    ]


def test_no_filter_of_an_unknown_name() -> None:
    assert "ingresscontroller" not in [each.name for each in FILTERS]


def test_options_reach_the_filters_that_have_them() -> None:
    local = HubAddress(("169.254.20.11",), 51003)
    built = build_filters(Order.PREFERRED, local)
    assert [filter_.name for filter_ in built] == NAMES
    assert [f for f, default in zip(built, FILTERS, strict=True) if f != default] == [
        ServiceTopology(Order.PREFERRED),
        LocalEndpoint(local),
    ]


def test_the_first_drop_ends_the_chain(encoding: Encoding) -> None:
    obj, notes = service(type="LoadBalancer").build(encoding), Notes()
    verdict = apply_chain(FILTERS, obj, World(), notes)
    assert verdict == ChainVerdict(Outcome.DROPPED, (("discardcloudservice", dropped("load-balancer")),))
    assert len(notes.lines) == 1


def test_one_change_makes_the_object_changed(encoding: Encoding) -> None:
    world = World(services={WEB: {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}})
    slice_ = endpoint_slice([endpoint("10.0.0.1", "n1"), endpoint("10.0.0.2", "n2")])
    verdict, left = run(NAMES, slice_, world, encoding)
    assert (verdict.outcome, left) == (Outcome.CHANGED, ["10.0.0.1"])


KUBERNETES = endpoint_slice(
    [endpoint("192.0.2.1", None)],
    name="kubernetes",
    service_name="kubernetes",
    ports=[HTTPS],
    annotations={"superedge.io/local-endpoint": "169.254.20.11", "superedge.io/local-port": "51003"},
)


def test_the_hub_s_own_endpoint_is_not_taken_away_again(encoding: Encoding) -> None:
    """Filters that remove endpoints run before those that put in the hub's address."""
    world = World(
        services={("default", "kubernetes"): {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}}
    )
    removing, adding = ["servicetopology"], ["forwardkubesvctraffic"]
    assert run(removing + adding, KUBERNETES, world, encoding)[1] == ["169.254.2.1"]
    assert run(adding + removing, KUBERNETES, world, encoding)[1] == []
    assert NAMES.index("servicetopology") < NAMES.index("forwardkubesvctraffic")


def test_the_pool_does_not_take_the_local_endpoint_away_again(encoding: Encoding) -> None:
    world = World(services={("default", "kubernetes"): {}}, pools={"p1": frozenset({"n1"})}, pool="p1")
    annotations = KUBERNETES.content["metadata"]["annotations"]
    sample = endpoints(subset({"192.0.2.1": None}), name="kubernetes", annotations=annotations)
    assert run(["endpoints", "localendpoint"], sample, world, encoding)[1] == ["169.254.20.11"]
    assert run(["localendpoint", "endpoints"], sample, world, encoding)[1] == []
    assert NAMES.index("endpoints") < NAMES.index("localendpoint")


def test_the_local_endpoint_that_somebody_asked_for_stands(encoding: Encoding) -> None:
    """So localendpoint runs after forwardkubesvctraffic."""
    built_in, asked = ["forwardkubesvctraffic"], ["localendpoint"]
    assert run(built_in + asked, KUBERNETES, World(), encoding)[1] == ["169.254.20.11"]
    assert run(asked + built_in, KUBERNETES, World(), encoding)[1] == ["169.254.2.1"]
    assert NAMES.index("forwardkubesvctraffic") < NAMES.index("localendpoint")


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
        assert apply(filter_, odd, World(services={WEB: {}}), Encoding.JSON).said()[0] == "kept"


def test_filters_with_the_same_settings_are_equal() -> None:
    assert build_filters() == FILTERS
    assert len(set(FILTERS)) == len(FILTERS)
