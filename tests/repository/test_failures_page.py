"""The failures that docs/install.md tells of are those that the doctor and the installation print."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repository.support.tree import ROOT

PAGE = ROOT / "docs" / "install.md"
SOURCES = ROOT / "addons" / "install"
TABLES = ("| the doctor says |", "| `edgehub install` says |")
LEAST = 4
"""Characters of a piece: any shorter one is somewhere."""


def phrases(text: str) -> list[str]:
    """What stands first in each row of the tables of failures."""
    found, inside = [], False
    for line in text.splitlines():
        inside = line.startswith(TABLES) or (inside and line.startswith("|"))
        if inside and (row := re.match(r"\| `([^`]+)` \|", line)):
            found.append(row[1])
    return found


def literals(folder: Path) -> list[str]:
    """The texts in the sources but for docstrings; of a text with values in it, each part."""
    nodes = [node for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return [node.value for node in texts if isinstance(node.value, str)]


def is_printed(phrase: str, texts: list[str]) -> bool:
    """Whether a phrase is made of pieces of these texts; `…` stands for what differs."""
    said = re.sub(r"^(ok|warning|failed) ", "", phrase)
    for part in filter(None, (each.strip(" :") for each in said.split("…"))):
        rest = part
        while rest:
            ends = (
                end for end in range(len(rest), LEAST - 1, -1) if any(rest[:end] in each for each in texts)
            )
            end = next(ends, 0)
            if not end:
                return False
            rest = rest[end:].lstrip()
            if 0 < len(rest) < LEAST:
                return False
    return True


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return literals(SOURCES)


@pytest.mark.parametrize("phrase", phrases(PAGE.read_text()))
def test_a_failure_of_the_page_is_one_that_is_printed(phrase: str, texts: list[str]) -> None:
    assert is_printed(phrase, texts)


def test_another_one_is_not(texts: list[str]) -> None:
    assert len(phrases(PAGE.read_text())) > 15
    assert not is_printed("failed weather it rains cats and dogs", texts)
