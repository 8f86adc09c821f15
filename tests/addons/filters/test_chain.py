"""The order of the filters, what breaks when it is another, and the first drop."""

from __future__ import annotations

from addons.filters.builtin.localendpoint import LocalEndpoint
from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.builtin.topology import Order
from addons.filters.chain import FILTERS, ChainVerdict, apply_chain, build_filters
from addons.filters.inputs import HubAddress
from addons.filters.verdict import Outcome, dropped
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import (
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
    world = World({"default/web": {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}})
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
    world = World({"default/kubernetes": {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}})
    removing, adding = ["servicetopology"], ["forwardkubesvctraffic"]
    assert run(removing + adding, KUBERNETES, world, encoding)[1] == ["169.254.2.1"]
    assert run(adding + removing, KUBERNETES, world, encoding)[1] == []
    assert NAMES.index("servicetopology") < NAMES.index("forwardkubesvctraffic")


def test_the_pool_does_not_take_the_local_endpoint_away_again(encoding: Encoding) -> None:
    world = World({"default/kubernetes": {}}, pools={"p1": frozenset({"n1"})}, pool="p1")
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
