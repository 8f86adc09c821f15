"""The pages that people read, README and docs, and the tables, headings and links in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.repository.support.tree import ROOT, files

README = ROOT / "README.md"
DOCS = ROOT / "docs"

BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ +(?P<text>.+)$", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")


class Table(NamedTuple):
    """A table of a page. Its cells are text as written, backticks included."""

    path: Path
    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def pages() -> tuple[Path, ...]:
    """README and every page of docs."""
    return README, *(path for path in files() if path.suffix == ".md" and path.parent == DOCS)


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = BLOCK.sub("", text)
    return {_anchor(found["text"]) for found in HEADING.finditer(plain)}


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return kept.replace(" ", "-")


def links(text: str) -> Iterator[str]:
    """The targets of a page's links."""
    for found in LINK.finditer(BLOCK.sub("", text)):
        yield found["target"]


@cache
def tables() -> tuple[Table, ...]:
    """Every table of every page."""
    return tuple(table for path in pages() for table in tables_of(path, path.read_text()))


def tables_of(path: Path, text: str) -> Iterator[Table]:
    """The tables of one page."""
    lines: list[tuple[str, ...]] = []
    for line in (*BLOCK.sub("", text).splitlines(), ""):
        if line.startswith("|"):
            lines.append(_cells(line))
        elif lines:
            heading, _, *rows = lines
            yield Table(path, heading, tuple(rows))
            lines = []


def _cells(line: str) -> tuple[str, ...]:
    # A bar in a cell is written \|.
    return tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def rows(first: str) -> tuple[tuple[str, ...], ...]:
    """The rows of the one table whose heading begins with this word; LookupError when there is none or two."""
    found = [table for table in tables() if table.heading[0] == first]
    if len(found) != 1:
        raise LookupError(f"{len(found)} tables begin with {first!r}")
    return found[0].rows
