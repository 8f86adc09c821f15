"""Docs agree with the code and stay short; each bound has a row; names on a page exist."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import controllers.runtime.metrics
from addons.telemetry import metrics
from scripts.building.site import NAVIGATION
from scripts.documents.program import BOUNDS, bounds, stale
from scripts.documents.tables import DOCS, samples
from tests.repository.support.tree import ROOT, label, parse, product_modules

PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
ROWS = [line for line in BOUNDS.read_text().splitlines() if any(bounds(line))]
REACHED = re.compile(r"\b(?:reached|Recent)\(\s*(?:\w+, )?\"([^\"]+)\"\s*\)")
METRIC = re.compile(r"`(edgehub_\w+)(?:\{(\w+)=\"([^\"]+)\"\})?` \|$")
MAX_LENGTH = 30_000
MAX_README_LINES = 120
MAX_PAGE_OF_USE = 800


def test_docs_and_readme_stay_within_their_limits() -> None:
    assert sum(len(page.read_text().split()) for page in DOCS.rglob("*.md")) <= MAX_LENGTH
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize("page", [page for page in NAVIGATION["Use"] if page != "README.md"])
def test_each_page_of_the_section_use_is_short(page: str) -> None:
    assert len((ROOT / page).read_text().split()) <= MAX_PAGE_OF_USE


def test_the_generated_tables_of_the_pages_are_current() -> None:
    assert [label(page) for page in stale()] == [], "scripts/docs writes them anew"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_row_of_a_bound_names_its_metric_or_the_reason_for_none(row: str) -> None:
    known = samples(metrics.REGISTRY) | samples(controllers.runtime.metrics.REGISTRY)
    found = METRIC.search(row)
    assert re.search(r"\| none: \w", row) if found is None else {found[2]} - {None} <= known[found[1]]


def test_each_bound_of_the_code_has_a_row() -> None:
    documented = {name for row in ROWS for name in bounds(row)}
    constants = {
        f"{label(path).removesuffix('.py').replace('/', '.')}.{name}"
        for path in product_modules()
        for node in parse(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in re.findall(r"^MAX_\w+", ast.unparse(node))
    }
    # Attempts of one write, which then waits: not a bound against growth.
    no_bounds = {"addons.offline.writes.replay.MAX_CONFLICTS"}
    assert constants - documented == no_bounds
    counted = {found[3] for row in ROWS if (found := METRIC.search(row)) and found[2] == "bound"}
    assert counted == {bound for path in product_modules() for bound in REACHED.findall(path.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_names_and_links_of_a_page_exist(page: object) -> None:
    """Check tests, paths, names of packages and linked pages; reject conflict markers of a merge."""
    text = ROOT.joinpath(str(page)).read_text()
    assert not re.search(r"^(<<<<<<<|=======$|>>>>>>>)", text, re.MULTILINE)
    spans = set(re.findall(r"`([^`\n]+)`", text))
    missing = {
        name
        for name in spans
        if re.fullmatch(r"(?:addons|kube|controllers)(?:\.\w+)+", name) and not leads(name)
    }
    for name in spans:
        path, _, test = name.partition("::")
        if re.fullmatch(r"(?:addons|kube|controllers|configmaps|scripts|tests|docs|\.ci)/[\w./-]*", path):
            is_there = (
                (ROOT / path).exists() and f"def {test}(" in (ROOT / path).read_text()
                if test
                else (ROOT / path).exists()
            )
            missing |= set() if is_there else {name}
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[\w-]*)?\)", text)
    assert (
        missing | {link for link in links if not (ROOT.joinpath(str(page)).parent / link).exists()} == set()
    )


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_a_link_with_an_anchor_refers_to_a_heading(page: Path) -> None:
    def anchors(page: Path) -> list[str]:
        """Return the anchors of a page's headings, as the site and GitHub generate them."""
        titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        return [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]

    found = re.findall(r"\]\((?!https?:)([^)#\s]*)#([\w-]+)\)", page.read_text())
    assert {
        (path, anchor)
        for path, anchor in found
        if anchor not in anchors((page.parent / path) if path else page)
    } == set()


def leads(name: str) -> bool:
    """Return True if a dotted name is a module, or defined in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return isinstance(found, type) and bool(
                    re.search(rf"\bself\.{part}\b|^    {part}:", inspect.getsource(found), re.M)
                )
            found = getattr(found, part)
        return True
    return False
