"""Names of resources as people type them."""

from __future__ import annotations

import pytest

from addons.ui.resource_names import nearest, plural_of


@pytest.mark.parametrize(
    ("typed", "plural"),
    [
        ("svc", "services"),
        ("service", "services"),
        ("services", "services"),
        ("ep", "endpoints"),
        ("endpoints", "endpoints"),
        ("endpointslice.discovery.k8s.io", "endpointslices.discovery.k8s.io"),
        ("networkpolicy", "networkpolicies"),
        ("widgets", "widgets"),
        ("", ""),
    ],
)
def test_a_name_in_short_or_in_the_singular_is_the_plural(typed: str, plural: str) -> None:
    assert plural_of(typed) == plural


def test_what_is_near_is_asked_for() -> None:
    assert nearest("Servics", {"services", "nodes"}) == ": is it 'services'?"
    assert nearest("zzzz", {"services", "nodes"}) == ""
