"""Labels that a client sends: known names stay, all others are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.chain import FILTERS
from addons.telemetry.labels import (
    GROUPS,
    OTHER,
    RESOURCES,
    VERBS,
    BoundedLabels,
    group_resource_label,
    resource_label,
    verb_label,
)


@pytest.mark.parametrize(("resource", "label"), [("pods", "pods"), ("", ""), ("widgets", "other")])
def test_resources(resource: str, label: str) -> None:
    assert resource_label(resource) == label


@pytest.mark.parametrize(
    ("verb", "label"), [("watch", "watch"), ("post", "post"), ("", "other"), ("brew", "other")]
)
def test_verbs(verb: str, label: str) -> None:
    assert verb_label(verb) == label


@pytest.mark.parametrize(
    ("group", "resource", "label"),
    [
        ("", "pods", "pods"),
        ("discovery.k8s.io", "endpointslices", "endpointslices.discovery.k8s.io"),
        ("invented.io", "pods", "other"),
        ("apps", "inventions", "other"),
    ],
)
def test_resources_with_their_group(group: str, resource: str, label: str) -> None:
    assert group_resource_label(group, resource) == label


def test_what_filters_know_has_its_name() -> None:
    assert {group for each in FILTERS for group, _ in each.resources} <= GROUPS
    assert {resource for each in FILTERS for _, resource in each.resources} <= RESOURCES


@given(st.text())
def test_nothing_else_becomes_a_label(text: str) -> None:
    assert verb_label(text) in {*VERBS, "other"}
    assert resource_label(text) in {*RESOURCES, "", "other"}


def test_names_that_others_choose_are_bounded() -> None:
    labels = BoundedLabels(limit=2)
    assert [labels.label(name) for name in ("a", "b", "c")] == ["a", "b", OTHER]
    assert labels.label("a") == "a", "who was first keeps a label"
