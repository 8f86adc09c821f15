"""A shown object has its secrets masked, and nothing else changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from addons.ui.masking import LAST_APPLIED, Visible, masked

VALUE = "dG9wLXNlY3JldA=="
SECRETS: list[tuple[str, dict[str, Any]]] = [
    ("Secret", {"data": {"k": VALUE}}),
    ("Secret", {"stringData": {"k": VALUE}}),
    ("Secret", {"data": VALUE}),
    ("Secret", {"metadata": {"annotations": {LAST_APPLIED: VALUE}}}),
    ("PartialObjectMetadata", {"metadata": {"annotations": {LAST_APPLIED: VALUE}}}),
    ("Table", {"rows": [{"object": {"metadata": {"annotations": {LAST_APPLIED: VALUE}}}}]}),
    ("Table", {"rows": [{"object": {"kind": "Secret", "data": {"k": VALUE}}}]}),  # ?includeObject=Object
]
TOKENS: list[tuple[str, dict[str, Any]]] = [
    ("TokenRequest", {"status": {"token": VALUE, "expirationTimestamp": "later"}}),
    ("TokenReview", {"spec": {"token": VALUE}}),
]


@pytest.mark.parametrize(("kind", "tree"), [*SECRETS, *TOKENS])
def test_a_secret_is_not_shown(kind: str, tree: dict[str, Any]) -> None:
    shown = json.dumps(masked(kind, tree))
    assert VALUE not in shown
    assert "(hidden, 16 characters)" in shown


@pytest.mark.parametrize(("kind", "tree"), SECRETS)
def test_values_are_shown_to_who_asks_for_them(kind: str, tree: dict[str, Any]) -> None:
    assert masked(kind, tree, visible=Visible(secrets=True)) == tree


@pytest.mark.parametrize(("kind", "tree"), TOKENS)
def test_tokens_are_never_shown(kind: str, tree: dict[str, Any]) -> None:
    assert VALUE not in json.dumps(masked(kind, tree, visible=Visible(secrets=True)))


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        ("ConfigMap", {"data": {"k": "v"}}),
        ("Secret", {"metadata": {"name": "s"}, "type": "Opaque"}),
        ("TokenRequest", {"status": "odd"}),
        ("TokenReview", {}),
    ],
)
def test_all_else_stays(kind: str, tree: dict[str, Any]) -> None:
    assert masked(kind, tree) == tree
