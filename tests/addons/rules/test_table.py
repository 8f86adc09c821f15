"""The rules: defaults, both formats, exclusions, problems, and the comparison of two sets of rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.topology import Order
from addons.filters.chain import FILTERS, build_filters
from addons.rules.table import (
    MAX_ENTRIES,
    MAX_PROBLEMS,
    MAX_SHOWN,
    MAX_VALUE_BYTES,
    OFF_IN_CLOUD_MODE,
    Rules,
    parse_rules,
)
from tests.support.cpu_time import own_seconds

GROUPS = {"endpointslices": "discovery.k8s.io"}


def chain(rules: Rules, request: str) -> list[str]:
    """Return the names of the filters for "component/resource#verb"."""
    component, resource, verb = re.split("[/#]", request)
    return [
        filter_.name for filter_ in rules.bindings.chain(component, GROUPS.get(resource, ""), resource, verb)
    ]


@pytest.mark.parametrize(
    ("data", "bound"),
    [
        # Document 002's own example.
        (
            {"filter_endpoints": "coredns/endpoints#list;watch,test/endpoints#list;watch"},
            {"test/endpoints#watch": "endpoints"},
        ),
        (
            {"filter_endpoints": "coredns/endpoints#list"},
            {
                "coredns/endpoints#list": "localpods servicetopology endpoints",
                "coredns/endpoints#watch": "localpods servicetopology",
            },
        ),
        (
            {"filter_servicetopology": "envoy/endpointslices"},
            {"envoy/endpointslices#watch": "servicetopology", "envoy/endpoints#watch": ""},
        ),
        (
            {"filter_servicetopology": "envoy/endpointslices#get"},
            {"envoy/endpointslices#get": "servicetopology"},
        ),
        # The newer format adds to the defaults, and affects only the components that it names.
        (
            {"masterservice": "agent, other"},
            {
                "other/services#list": "masterservice",
                "kubelet/services#list": "masterservice",
                "third/services#list": "",
            },
        ),
        # Both formats together.
        (
            {"masterservice": "agent", "filter_masterservice": "other/services#get"},
            {"other/services#get": "masterservice", "agent/services#list": "masterservice"},
        ),
        # Every component, also those without a name, but not the hub itself.
        (
            {"masterservice": "*"},
            {
                "anything/services#list": "masterservice",
                "unknown/services#list": "masterservice",
                "edgehub/services#list": "",
            },
        ),
        ({"filter_servicetopology": "envoy/*#list"}, {"envoy/endpoints#list": "servicetopology"}),
        # Exclusions of defaults and of other entries, before or after them.
        (
            {"servicetopology": "-coredns"},
            {
                "coredns/endpointslices#list": "localpods",
                "kube-proxy/endpoints#list": "localpods servicetopology localendpoint",
            },
        ),
        ({"servicetopology": "-coredns,coredns"}, {"coredns/endpointslices#list": "localpods"}),
        (
            {"filter_servicetopology": "-coredns", "servicetopology": "coredns"},
            {"coredns/endpointslices#list": "localpods"},
        ),
        (
            {"servicetopology": "*, -envoy"},
            {"envoy/endpointslices#list": "", "other/endpointslices#list": "servicetopology"},
        ),
        ({"servicetopology": "-*"}, {"coredns/endpointslices#list": "localpods"}),
        ({"servicetopology": "-*, coredns"}, {"coredns/endpointslices#list": "localpods"}),
        (
            {"filter_servicetopology": "-coredns/endpointslices"},
            {
                "coredns/endpointslices#watch": "localpods",
                "coredns/endpoints#watch": "localpods servicetopology",
            },
        ),
        (
            {"filter_servicetopology": "-coredns/endpointslices#list"},
            {"coredns/endpointslices#watch": "localpods servicetopology"},
        ),
        ({"filter_masterservice": "agent/services#get, -agent"}, {"agent/services#get": ""}),
        # The order of filters is fixed, whatever the order of keys.
        (
            {"endpoints": "*", "localendpoint": "*", "servicetopology": "*"},
            {"any/endpoints#list": "servicetopology endpoints localendpoint"},
        ),
    ],
)
def test_a_config_map_binds_filters_to_requests(data: dict[str, str], bound: dict[str, str]) -> None:
    rules = parse_rules(data)
    assert rules.problems.named == ()
    for _ in ("asked", "remembered"):
        assert {request: " ".join(chain(rules, request)) for request in bound} == bound


@pytest.mark.parametrize(
    ("key", "value", "text", "why"),
    [
        ("filter_nosuch", "a/b#list", "a/b#list", "no such key"),
        ("nosuch", "", "", "no such key"),
        ("servicetopolgy", "a", "a", "did you mean servicetopology?"),
        ("servicetopology", "- kube-proxy", "- kube-proxy", "this is an item of a YAML list, as text"),
        ("cache_agents", "-\tkube-proxy", "-\tkube-proxy", "this is an item of a YAML list, as text"),
        ("filter_", "x", "x", "no such key"),
        ("filter_cache_agents", "x", "x", "no such key"),
        (
            "filter_masterservice",
            "agent/services#list;delete",
            "agent/services#list;delete",
            "verbs are one or more of",
        ),
        ("filter_masterservice", "agent/pods#list", "agent/pods#list", "does not understand this resource"),
        ("masterservice", "a:b", "a:b", "a component is"),
        ("masterservice", "edgehub", "edgehub", "the hub's own requests are never filtered"),
        ("offline_leases", "web", "web", "a lease is namespace/name"),
        ("offline_leases", "a/B", "a/B", "a lease is namespace/name"),
        ("offline_leases", "-a/b", "-a/b", "a lease is namespace/name"),
        ("pool_resources", "nodes", "nodes", "a resource is group/version/resource"),
        ("pool_resources", "/v1/secrets", "/v1/secrets", "secrets are never shared"),
        ("cache_agents", "a:b", "a:b", "a component is"),
        ("cache_agents", "a/b", "a/b", "a component is"),
        ("cache_agents", "-edgehub", "-edgehub", "the hub's own requests are always cached"),
    ],
)
def test_an_unreadable_entry_is_reported_and_the_rest_applies(
    key: str, value: str, text: str, why: str
) -> None:
    rules = parse_rules({key: value, "endpoints": "envoy"})
    (problem,) = rules.problems.named
    assert (problem.key, problem.text) == (key, text)
    assert why in problem.why
    assert chain(rules, "envoy/endpoints#list") == ["endpoints"]
    assert chain(rules, "kubelet/services#list") == ["masterservice"]


def test_verbs_separated_by_commas_are_not_supported() -> None:
    """Document 002 shows that form in its text, but its example uses semicolons."""
    rules = parse_rules({"filter_endpoints": "coredns/endpoints#list,watch"})
    assert [problem.text for problem in rules.problems.named] == ["watch"]
    assert "separated by ';'" in rules.problems.named[0].why
    assert "endpoints" in chain(rules, "coredns/endpoints#list")
    assert "endpoints" not in chain(rules, "coredns/endpoints#watch")


def test_a_huge_value_is_skipped_and_not_quoted_in_the_problem() -> None:
    rules = parse_rules({"masterservice": "é" * (MAX_VALUE_BYTES // 2) + ",agent", "endpoints": "envoy"})
    (problem,) = rules.problems.named
    assert problem.text == "é" * MAX_SHOWN
    assert chain(rules, "agent/services#list") == []
    assert chain(rules, "envoy/endpoints#list") == ["endpoints"]


def test_entries_beyond_the_bound_are_skipped_with_one_problem() -> None:
    names = [f"c{number}" for number in range(MAX_ENTRIES)]
    rules = parse_rules({"endpoints": ",".join(names[:-1]), "masterservice": "first, second, third"})
    (problem,) = rules.problems.named
    assert (problem.key, problem.text) == ("masterservice", "second")
    assert chain(rules, f"{names[-2]}/endpoints#list") == ["endpoints"]
    assert chain(rules, "first/services#list") == ["masterservice"]
    assert chain(rules, "second/services#list") == []


def test_unknown_component_names_are_not_cached() -> None:
    rules = parse_rules({"masterservice": "*"})
    for number in range(1000):
        rules.bindings.chain(f"invented-{number}", "", "services", "list")
        rules.bindings.chain("kubelet", "", f"invented-{number}", "list")
        rules.bindings.chain("kubelet", "", "services", f"invented-{number}")
    assert len(rules.bindings._chains) == 1


keys = st.sampled_from(["cache_agents", *(p + f.name for f in FILTERS for p in ("", "filter_"))]) | st.text(
    max_size=8
)
values = st.text(alphabet="ab*-/#;,. endpointslicervw", max_size=40) | st.text(max_size=20)


@given(st.dictionaries(keys, values, max_size=5))
def test_any_config_map_is_parsed_without_an_exception_or_lost_defaults(data: dict[str, str]) -> None:
    rules = parse_rules(data)
    assert chain(rules, "edgehub/services#list") == []
    assert rules.is_cached("edgehub")
    defaults = {
        "kubelet/services#list": ["masterservice"],
        "kubelet/services#watch": ["masterservice"],
        "kubelet/services#get": [],
        "kubelet/configmaps#get": ["inclusterconfig"],
        "kubelet/pods#get": ["serviceenvupdater"],
        "kubelet/endpointslices#list": [],
        "kube-proxy/services#list": ["discardcloudservice", "nodeportisolation"],
        "kube-proxy/endpointslices#watch": ["localpods", "servicetopology", "localendpoint"],
        "kube-proxy/endpoints#list": ["localpods", "servicetopology", "localendpoint"],
        "kube-proxy/nodes#list": [],
        "coredns/endpointslices#watch": ["localpods", "servicetopology"],
        "nginx-ingress-controller/endpoints#list": ["localpods", "servicetopology"],
        "flanneld/services#list": [],
        "edgehub/services#list": [],
        "/services#list": [],
    }
    if not any("-" in value for value in data.values()):
        for request_, filters in defaults.items():
            assert request_.startswith("edgehub") or set(filters) <= set(chain(rules, request_))


BASE = (
    "kubelet kube-proxy flanneld coredns raven-agent-ds yurttunnel-agent yurthub edgehub multiplexer-proxy-n2"
)


@pytest.mark.parametrize(
    ("value", "cached", "relayed"),
    [
        (None, BASE, "agent multiplexer-proxy"),
        ("", BASE, "agent"),
        ("agent, other", f"{BASE} agent other", "third"),
        ("*", f"{BASE} agent unknown", ""),
        ("*, -unknown", f"{BASE} agent", "unknown"),
        ("*, -agent", BASE, "agent"),
        ("-coredns", "kubelet edgehub", "coredns"),
        ("-multiplexer-proxy-n2", "multiplexer-proxy-n3", "multiplexer-proxy-n2"),
        ("-*, agent", "edgehub", "kubelet agent"),
    ],
)
def test_cached_components_are_the_defaults_and_the_named_ones(
    value: str | None, cached: str, relayed: str
) -> None:
    rules = parse_rules(None if value is None else {"cache_agents": value})
    assert rules.problems.named == ()
    assert [component for component in cached.split() if not rules.is_cached(component)] == []
    assert [component for component in relayed.split() if rules.is_cached(component)] == []


@pytest.mark.parametrize(
    ("group", "resource", "verb", "expected"),
    [
        ("", "services", "list", True),
        ("", "services", "get", True),
        ("discovery.k8s.io", "endpointslices", "watch", True),
        ("", "endpointslices", "watch", False),
        ("", "services", "create", False),
        ("", "nodes", "list", False),
    ],
)
def test_requests_that_some_config_map_could_filter_are_recognized(
    group: str, resource: str, verb: str, expected: bool
) -> None:
    assert parse_rules(None).bindings.could_filter(group, resource, verb) is expected


def test_disabled_filters_are_off_whatever_the_config_map_binds() -> None:
    data = {"discardcloudservice": "agent", "masterservice": "agent"}
    rules = parse_rules(data, OFF_IN_CLOUD_MODE)
    assert chain(rules, "agent/services#list") == ["masterservice"]
    assert chain(rules, "kube-proxy/endpointslices#list") == ["localpods", "servicetopology"]
    assert not rules.bindings.could_filter("", "pods", "list")
    assert rules.bindings.could_filter("", "services", "list")


def test_filters_disabled_in_cloud_mode_exist() -> None:
    assert {filter_.name for filter_ in FILTERS} >= OFF_IN_CLOUD_MODE


def test_explain_names_the_entries_that_decide() -> None:
    rules = parse_rules(
        {"filter_servicetopology": "*/endpointslices#list", "servicetopology": "-coredns"},
        frozenset({"localendpoint"}),
    )
    assert rules.bindings.explain("coredns", "discovery.k8s.io", "endpointslices", "list") == [
        "localpods: bound by built-in",
        "servicetopology: bound by built-in",
        "servicetopology: taken away by configmap key servicetopology entry '-coredns'",
        "servicetopology: bound by configmap key filter_servicetopology entry '*/endpointslices#list'",
    ]
    assert rules.bindings.explain("kube-proxy", "", "endpoints", "list") == [
        "localpods: bound by built-in",
        "servicetopology: bound by built-in",
        "localendpoint: bound by built-in",
        "localendpoint: switched off by the hub's options",
    ]
    assert rules.bindings.explain("kube-proxy", "", "nodes", "list") == []
    assert rules.bindings.explain("edgehub", "", "services", "list") == [
        "edgehub: the hub's own requests are never filtered"
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (parse_rules(None), parse_rules({})),
        (
            parse_rules({"masterservice": "a,b"}),
            parse_rules({"filter_masterservice": "b/services#watch;list, a,"}),
        ),
        (parse_rules({"masterservice": "non:sense"}), parse_rules({"masterservice": ""})),
        (parse_rules({"masterservice": "kubelet"}), parse_rules(None)),
        (parse_rules(None, frozenset({"nosuch"})), parse_rules(None)),
    ],
)
def test_equivalent_rules_have_the_same_digest(one: Rules, other: Rules) -> None:
    assert one.digest == other.digest


def test_different_rules_have_different_digests() -> None:
    digests = {
        parse_rules(None).digest,
        parse_rules({"masterservice": "a"}).digest,
        parse_rules({"masterservice": "-a"}).digest,
        parse_rules({"filter_masterservice": "a/services#get"}).digest,
        parse_rules({"endpoints": "a"}).digest,
        parse_rules({"offline_leases": "a/b"}).digest,
        parse_rules({"pool_resources": "/v1/nodes"}).digest,
        parse_rules({"cache_agents": "a"}).digest,
        parse_rules({"cache_agents": "-a"}).digest,
        parse_rules(None, frozenset({"endpoints"})).digest,
        parse_rules(None, filters=build_filters(Order.PREFERRED)).digest,
    }
    assert len(digests) == 11


def test_lists_and_watches_share_a_view_unless_the_rules_differ() -> None:
    slices = ("reader", "discovery.k8s.io", "endpointslices")
    same = parse_rules({"filter_servicetopology": "reader/endpointslices"})
    apart = parse_rules({"filter_servicetopology": "reader/endpointslices#watch"})
    assert {same.bindings.verb_of_view(*slices, verb) for verb in ("list", "watch")} == {"watch"}
    assert [apart.bindings.verb_of_view(*slices, verb) for verb in ("list", "watch")] == ["list", "watch"]


def test_ten_thousand_invalid_entries_give_a_hundred_problems_and_a_count() -> None:
    bad = ",".join(f"not:a:component {number}" for number in range(MAX_ENTRIES))
    given = {"filter_masterservice": bad, "filter_endpoints": "envoy/endpoints"}
    assert own_seconds(lambda: parse_rules(given)) < 1.0
    rules = parse_rules(given)
    assert (len(rules.problems.named), rules.problems.unnamed) == (MAX_PROBLEMS, MAX_ENTRIES - MAX_PROBLEMS)
