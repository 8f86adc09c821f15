"""Valid and invalid entries of the rules ConfigMap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.filter import ENDPOINT_SLICES, ENDPOINTS, LIST_AND_WATCH, READS
from addons.rules.entries import ANY, RuleEntry, parse_entry, split_entries
from addons.rules.table import MAX_LEASES, MAX_RESOURCES, parse_rules

TOPOLOGY = ServiceTopology()
BOTH = frozenset({ENDPOINTS, ENDPOINT_SLICES})
SLICES = frozenset({ENDPOINT_SLICES})


@pytest.mark.parametrize(
    ("text", "excludes", "component", "resources", "verbs"),
    [
        ("coredns", False, "coredns", BOTH, LIST_AND_WATCH),
        ("CoreDNS", False, "coredns", BOTH, LIST_AND_WATCH),
        ("*", False, ANY, BOTH, LIST_AND_WATCH),
        ("coredns/endpointslices", False, "coredns", SLICES, LIST_AND_WATCH),
        ("coredns/endpointslices.discovery.k8s.io", False, "coredns", SLICES, LIST_AND_WATCH),
        ("coredns/endpoints", False, "coredns", {ENDPOINTS}, LIST_AND_WATCH),
        ("coredns/*", False, "coredns", BOTH, LIST_AND_WATCH),
        ("coredns/endpointslices#list;watch", False, "coredns", SLICES, LIST_AND_WATCH),
        ("coredns/endpointslices#get", False, "coredns", SLICES, {"get"}),
        (" a.b_c-1 / endpointslices # get ; list; ", False, "a.b_c-1", SLICES, {"get", "list"}),
        ("*/*#watch", False, ANY, BOTH, {"watch"}),
        ("Kubernetes Java  Client/endpoints", False, "kubernetes java client", {ENDPOINTS}, LIST_AND_WATCH),
        ("-kubernetes java client", True, "kubernetes java client", BOTH, READS),
        ("unknown", False, "unknown", BOTH, LIST_AND_WATCH),
        # An exclusion without resources or verbs covers all of them.
        ("-coredns", True, "coredns", BOTH, READS),
        ("-*", True, ANY, BOTH, READS),
        ("-coredns/endpointslices", True, "coredns", SLICES, READS),
        ("-coredns/endpointslices#get", True, "coredns", SLICES, {"get"}),
    ],
)
def test_valid_entries_are_parsed(
    text: str, excludes: bool, component: str, resources: set[tuple[str, str]], verbs: set[str]
) -> None:
    expected = RuleEntry(excludes, component, frozenset(resources), frozenset(verbs), "here")
    assert parse_entry(TOPOLOGY, text, "here") == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/endpointslices", "a component is 1 to 64"),
        ("-", "a component is 1 to 64"),
        ("..", "a component is 1 to 64"),
        ("core\tdns/endpointslices", "a component is 1 to 64"),
        ("größe", "a component is 1 to 64"),
        ("x" * 65, "a component is 1 to 64"),
        ("*dns", "a component is 1 to 64"),
        ("coredns#list", "verbs need a resource"),
        ("coredns/", "does not understand this resource, only: endpoints, endpointslices"),
        ("coredns/services", "does not understand this resource"),
        ("coredns/endpointslices.other.io", "does not understand this resource"),
        ("coredns/endpoints.", "does not understand this resource"),
        ("coredns/endpointslices/status", "does not understand this resource"),
        ("coredns/endpointslices#", "verbs are one or more of get, list, watch"),
        ("coredns/endpointslices#;", "verbs are one or more of"),
        ("coredns/endpointslices#delete", "verbs are one or more of"),
        ("coredns/endpointslices#list watch", "verbs are one or more of"),
        ("coredns/endpointslices#LIST", "verbs are one or more of"),
        ("coredns/endpointslices#list#watch", "verbs are one or more of"),
        # The second half of "component/resource#list,watch", a form in some texts about YurtHub.
        ("watch", "this is a verb, not a component; verbs are separated by ';'"),
        ("list", "this is a verb"),
    ],
)
def test_invalid_entries_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_entry(TOPOLOGY, text, "here")


@given(st.text(alphabet="ab*-/#;. \n\u00e9", max_size=30))
def test_any_entry_is_parsed_or_raises_a_value_error(text: str) -> None:
    try:
        entry = parse_entry(TOPOLOGY, text, "here")
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either end is right for random text
    else:
        assert entry.resources <= TOPOLOGY.resources
        assert entry.verbs <= READS


@pytest.mark.parametrize(
    ("value", "entries"),
    [
        ("", []),
        (" ", []),
        (",", []),
        ("a", ["a"]),
        (" a , b,,c, ", ["a", "b", "c"]),
        ("a,\n  b\n", ["a", "b"]),
    ],
)
def test_entries_are_separated_by_commas(value: str, entries: list[str]) -> None:
    assert split_entries(value) == entries


def test_leases_that_pods_may_renew_offline_are_parsed() -> None:
    assert parse_rules({"offline_leases": "a/b, kube-system/x.y,a/b"}).leases == {
        ("a", "b"),
        ("kube-system", "x.y"),
    }
    assert parse_rules(None).leases == frozenset()


def test_the_number_of_offline_leases_is_bounded() -> None:
    rules = parse_rules({"offline_leases": ",".join(f"a/b{number}" for number in range(MAX_LEASES + 2))})
    assert len(rules.leases) == MAX_LEASES
    assert [each.text for each in rules.problems.named] == [f"a/b{MAX_LEASES}", f"a/b{MAX_LEASES + 1}"]


def test_the_number_of_shared_resources_is_bounded() -> None:
    names = [f"g/v1/r{number:02}" for number in range(MAX_RESOURCES + 1)]
    rules = parse_rules({"pool_resources": ",".join([*names, names[0]])})
    assert len(rules.pool_resources) == MAX_RESOURCES
    assert [each.text for each in rules.problems.named] == [names[-1]]
