"""The page on architecture has the rooms that import-linter holds, in their order."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.repository.pages import DOCS, tables
from tests.repository.tree import ROOT

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
