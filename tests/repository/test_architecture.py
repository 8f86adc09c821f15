"""The page on architecture has the rooms that import-linter holds, in their order, and every patch of mitmproxy."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from addons.connections import PATCHES
from addons.proxy.patches import KNOWN_MITMPROXY
from tests.repository.support.pages import DOCS, rows, tables
from tests.repository.support.tree import ROOT

CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
LAYERS = {each["containers"][0]: each["layers"] for each in CONTRACTS if each["type"] == "layers"}


def told_layers(package: str) -> list[set[str]]:
    """The rooms of a package as the page has them, a row for each layer."""
    (table,) = [
        each
        for each in tables()
        if each.path == DOCS / "architecture.md" and each.heading[0] == f"rooms of `{package}/`"
    ]
    return [set(re.findall(r"`(\w+)", row[0])) for row in table.rows]


@pytest.mark.parametrize("package", LAYERS)
def test_the_page_has_the_layers_of_a_package(package: str) -> None:
    assert told_layers(package) == [set(re.findall(r"\w+", layer)) for layer in LAYERS[package]]


def place_of(place: object) -> str:
    """A module or class of mitmproxy's as the page names it."""
    module = f"{place.__module__}." if isinstance(place, type) else ""
    return f"{module}{place.__name__}"  # type: ignore[attr-defined]  # a module or a class


def test_the_page_has_each_patch_with_the_test_that_ends_it() -> None:
    patches = {(f"{place_of(each.place)}.{each.name}", each.shown_by) for each in PATCHES}
    told = {
        (name, row[2].strip("`"))
        for row in rows("patched in mitmproxy")
        for name in re.findall(r"`([\w.]+)`", row[0])
    }
    assert told == patches


def test_the_page_names_the_version_that_is_patched() -> None:
    assert f"mitmproxy {KNOWN_MITMPROXY}" in (DOCS / "architecture.md").read_text()
