"""Labels that a client sends: known names stay, all others are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.chain import FILTERS
from addons.telemetry.labels import RESOURCES, VERBS, resource_label, verb_label


@pytest.mark.parametrize(("resource", "label"), [("pods", "pods"), ("", ""), ("widgets", "other")])
def test_resources(resource: str, label: str) -> None:
    assert resource_label(resource) == label


@pytest.mark.parametrize(
    ("verb", "label"), [("watch", "watch"), ("post", "post"), ("", "other"), ("brew", "other")]
)
def test_verbs(verb: str, label: str) -> None:
    assert verb_label(verb) == label


def test_what_filters_know_has_its_name() -> None:
    assert {resource for each in FILTERS for _, resource in each.resources} <= RESOURCES


@given(st.text())
def test_nothing_else_becomes_a_label(text: str) -> None:
    assert verb_label(text) in {*VERBS, "other"}
    assert resource_label(text) in {*RESOURCES, "", "other"}
