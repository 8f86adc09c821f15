"""How tables, headings and links are read from a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository.support.pages import headings, links, pages, rows, tables_of
from tests.repository.support.tree import ROOT

PAGE = Path("page.md")


def test_pages_are_found() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "security.md"} <= set(pages())


def test_a_table_has_its_heading_and_rows() -> None:
    text = "before\n\n| one | two |\n|---|---|\n| `a` | b \\| c |\n| d | |\nafter\n"
    (table,) = tables_of(PAGE, text)
    assert table.heading == ("one", "two")
    assert table.rows == (("`a`", "b | c"), ("d", ""))


def test_a_table_in_a_block_is_none() -> None:
    assert list(tables_of(PAGE, "```\n| one |\n|---|\n| a |\n```\n")) == []


def test_rows_of_a_table_that_is_not_there() -> None:
    with pytest.raises(LookupError, match="0 tables"):
        rows("no such heading")


def test_anchors_of_headings() -> None:
    text = "# The endpoints of default/kubernetes\n```\n# no heading\n```\n## `scripts/hub`: Why?\n"
    assert headings(text) == {"the-endpoints-of-defaultkubernetes", "scriptshub-why"}


def test_targets_of_links() -> None:
    assert list(links("[a](docs/a.md), [b](#c) and ![p](p.png)\n```\n[d](e)\n```\n")) == ["docs/a.md", "#c"]
