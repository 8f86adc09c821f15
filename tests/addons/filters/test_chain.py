"""The filter chain: its order, the contract of each filter, and plugin filters in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from addons.filters.builtin.localendpoint import LocalEndpoint
from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.builtin.topology import Order
from addons.filters.chain import FILTERS, ChainVerdict, apply_chain, build_filters
from addons.filters.filter import CONFIG_MAPS, ENDPOINT_SLICES, ENDPOINTS, PODS, READS, SERVICES, Filter
from addons.filters.inputs import HubAddress
from addons.filters.plugins import (
    MAX_PLUGINS,
    MAX_REASONS,
    FilterPlugin,
    in_order,
    is_plugin_name,
    need_json,
    plugin_of,
)
from addons.filters.verdict import Outcome, dropped, kept
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
from tests.addons.support.filter_plugins import Hiding

NAMES = [filter_.name for filter_ in FILTERS]
HTTPS = {"name": "https", "protocol": "TCP", "port": 6443}


def run(names: list[str], sample: Sample, world: World, encoding: Encoding) -> tuple[ChainVerdict, list[str]]:
    """Run the chain of these filters in this order; return the remaining addresses."""
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


def test_an_unknown_filter_name_has_no_filter() -> None:
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


def test_filters_do_not_remove_the_hubs_own_endpoint(encoding: Encoding) -> None:
    """Filters that remove endpoints run before those that add the hub's address."""
    world = World(
        services={("default", "kubernetes"): {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}}
    )
    removing, adding = ["servicetopology"], ["forwardkubesvctraffic"]
    assert run(removing + adding, KUBERNETES, world, encoding)[1] == ["169.254.2.1"]
    assert run(adding + removing, KUBERNETES, world, encoding)[1] == []
    assert NAMES.index("servicetopology") < NAMES.index("forwardkubesvctraffic")


def test_pool_filters_do_not_remove_the_local_endpoint(encoding: Encoding) -> None:
    world = World(services={("default", "kubernetes"): {}}, pools={"p1": frozenset({"n1"})}, pool="p1")
    annotations = KUBERNETES.content["metadata"]["annotations"]
    sample = endpoints(subset({"192.0.2.1": None}), name="kubernetes", annotations=annotations)
    assert run(["endpoints", "localendpoint"], sample, world, encoding)[1] == ["169.254.20.11"]
    assert run(["localendpoint", "endpoints"], sample, world, encoding)[1] == []
    assert NAMES.index("endpoints") < NAMES.index("localendpoint")


def test_localendpoint_overrides_the_address_of_forwardkubesvctraffic(encoding: Encoding) -> None:
    """For this, localendpoint runs after forwardkubesvctraffic."""
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
def test_each_filters_name_and_defaults_are_valid_in_a_rule(filter_: Filter) -> None:
    assert filter_.name.isascii()
    assert filter_.name.isalpha()
    assert filter_.name.islower()
    assert filter_.verbs
    assert filter_.verbs <= READS
    assert all(component_of(component) == component for component in filter_.components)


@EACH
def test_each_filters_reasons_are_valid_metric_labels(filter_: Filter) -> None:
    assert all(reason.replace("-", "").isalpha() and reason.islower() for reason in filter_.reasons)


@EACH
def test_each_filter_accepts_an_object_without_fields(filter_: Filter, encoding: Encoding) -> None:
    for resource in filter_.resources:
        group, _ = resource
        nothing = Sample(f"{group}/v1" if group else "v1", KINDS[resource], {"metadata": {}})
        assert apply(filter_, nothing, World(), encoding).said()[0] == "kept"


@EACH
@pytest.mark.parametrize(
    "garbage",
    [None, 7, "x", [7], [None], {"a": 7}, [{"addresses": 7, "conditions": "x", "env": 3}], [["x"]]],
    ids=repr,
)
def test_each_filter_accepts_json_with_fields_of_the_wrong_types(filter_: Filter, garbage: object) -> None:
    fields = ("spec", "endpoints", "subsets", "ports", "data", "addressType")
    for resource in filter_.resources:
        group, _ = resource
        content = dict.fromkeys(fields, garbage) | {"metadata": {"name": "web", "namespace": "default"}}
        odd = Sample(f"{group}/v1" if group else "v1", KINDS[resource], content)
        assert apply(filter_, odd, World(services={WEB: {}}), Encoding.JSON).said()[0] == "kept"


def test_filters_with_the_same_settings_are_equal() -> None:
    assert build_filters() == FILTERS
    assert len(set(FILTERS)) == len(FILTERS)


OWN = [each.name for each in FILTERS]


def plugin(name: str = "acme-hide", **said: Any) -> FilterPlugin:
    return plugin_of(Hiding(name=name, **said), "digest")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"name": "hide"}, "with a hyphen"),
        ({"name": "Acme-hide"}, "lower case letters"),
        ({"name": "acme-" + "x" * 64}, "needs a name"),
        ({"name": 7}, "needs a name"),
        ({"resources": frozenset()}, "acme-hide.resources must be a frozenset"),
        ({"resources": frozenset({"services"})}, "pairs"),
        ({"components": {"kube-proxy"}}, "acme-hide.components must be a frozenset"),
        ({"components": frozenset({"Kube-Proxy"})}, "component names"),
        ({"verbs": frozenset({"delete"})}, "get, list, watch"),
        ({"verbs": frozenset()}, "get, list, watch"),
        ({"reasons": frozenset()}, "reasons"),
        ({"reasons": frozenset({"not a slug"})}, "lower case letters, digits"),
        ({"reasons": frozenset(f"r{number}" for number in range(MAX_REASONS + 1))}, f"1 to {MAX_REASONS}"),
        ({"after": "masterservice"}, "acme-hide.after must be a tuple"),
        ({"protobuf": 1}, "protobuf"),
    ],
)
def test_a_filter_with_an_incomplete_declaration_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        plugin(**said)


def test_a_plugin_without_a_method_apply_is_refused() -> None:
    hiding = Hiding()
    said = ("name", "resources", "components", "verbs", "reasons")
    lame = type("Lame", (), {each: getattr(hiding, each) for each in said})
    with pytest.raises(ValueError, match="acme-hide has no method apply"):
        plugin_of(lame(), "")


@pytest.mark.parametrize("name", OWN)
def test_no_builtin_filter_has_a_name_of_a_plugin(name: str) -> None:
    assert not is_plugin_name(name)


def test_two_plugins_are_equal_if_their_code_digests_are() -> None:
    assert plugin() == plugin(hidden="other"), "the digest speaks for the code"
    assert plugin() != plugin_of(Hiding(), "another digest")
    assert repr(plugin()) == repr(plugin(reasons=frozenset({"shown", "hidden", "more"}))), (
        "a set's order is chance"
    )


@pytest.mark.parametrize("answer", [kept("unheard-of"), "kept", None.__class__])
def test_a_filter_with_an_undeclared_reason_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="not a verdict with one of its reasons"):
        plugin(answer=answer).apply(service().build(Encoding.JSON), World())


def test_a_filter_that_needs_json_is_not_called_with_protobuf() -> None:
    careful = plugin(protobuf=False)
    assert need_json([*FILTERS, careful])
    assert not need_json([*FILTERS, plugin()])
    assert careful.apply(service("api").build(Encoding.JSON), World()) == kept("shown")
    with pytest.raises(ValueError, match="supports only JSON"):
        careful.apply(service("api").build(Encoding.PROTOBUF), World())


@pytest.mark.parametrize(
    ("added", "order"),
    [
        ([{}], [*OWN, "acme-hide"]),
        ([{"after": ("masterservice",)}], [*OWN, "acme-hide"]),
        ([{"before": (OWN[0],)}], ["acme-hide", *OWN]),
        ([{"after": (OWN[0],), "before": (OWN[1],)}], [OWN[0], "acme-hide", *OWN[1:]]),
        ([{"name": "b-b", "after": ("a-a",)}, {"name": "a-a"}], [*OWN, "a-a", "b-b"]),
        ([{"name": "b-b", "before": (OWN[0],)}, {"name": "a-a", "before": ("b-b",)}], ["a-a", "b-b", *OWN]),
        ([{"after": ("localhealth",)}], [*OWN, "acme-hide"]),
    ],
)
def test_filters_are_ordered_by_their_declared_positions(
    added: list[dict[str, Any]], order: list[str]
) -> None:
    assert [each.name for each in in_order(FILTERS, [plugin(**said) for said in added])] == order


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ([{}, {}], "two filters are called acme-hide"),
        ([{"after": ("nobody",)}], "'nobody', and there is no such filter"),
        ([{"after": (OWN[1],), "before": (OWN[0],)}], "no order has all of acme-hide"),
        ([{"name": f"a-{number}"} for number in range(MAX_PLUGINS + 1)], f"more than {MAX_PLUGINS}"),
    ],
)
def test_a_filter_without_a_valid_position_is_refused(added: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        in_order(FILTERS, [plugin(**said) for said in added])


def test_a_plugin_implements_the_filter_protocol() -> None:
    found = plugin()
    assert {found: 1}[replace(found)] == 1, "chains of filters are keys"
    assert cast(Any, found.code).name == found.name
