"""Each number of the page on security is the one that the code has: a row names its constant behind the number.

A row names the metric too that counts when its bound is reached, and a test names the constant.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import controllers.runtime.metrics
from addons.telemetry import metrics
from tests.repository.support.pages import DOCS, Table, tables
from tests.repository.support.tree import ROOT, WORD, label, parse, room_modules
from tests.repository.test_tables import samples

BOUND = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?) ?(?P<unit>[A-Za-z]*)[^()`\d]*\(`(?P<module>[\w.]+)\.(?P<name>[A-Z][A-Z_0-9]*)`\)"
)
"""A number, its unit or what it counts, and the constant."""

BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SECONDS = {"ms": 0.001, "s": 1, "seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
UNITS: dict[str, float] = BYTES | SECONDS
"""Any other word says what is counted."""


class Bound(NamedTuple):
    """A number that a row tells, and where the code has it."""

    told: float
    unit: float
    module: str
    name: str

    def is_of(self, constant: float) -> bool:
        """Whether the constant is this number, in bytes and seconds or in the unit that its own name says."""
        return any(constant == pytest.approx(each) for each in (self.told * self.unit, self.told))


def bounds(cell: str) -> Iterator[Bound]:
    """The bounds of a cell."""
    for found in BOUND.finditer(cell):
        number = float(found["number"].replace(",", ""))
        yield Bound(number, UNITS.get(found["unit"], 1), found["module"], found["name"])


def tables_of_bounds() -> list[Table]:
    return [
        table
        for table in tables()
        if table.path == DOCS / "security.md" and table.heading[:2] == ("what", "bound")
    ]


def rows() -> list[tuple[str, str]]:
    """(what is bounded, the bound) of each row."""
    return [(row[0], row[1]) for table in tables_of_bounds() for row in table.rows]


@pytest.mark.parametrize(("what", "bound"), rows())
def test_a_bound_is_the_codes(what: str, bound: str) -> None:
    found = list(bounds(bound))
    assert found, f"the bound of {what!r} names no constant: write NUMBER UNIT (`module.NAME`)"
    for each in found:
        constant = getattr(importlib.import_module(each.module), each.name)
        assert each.is_of(constant), f"{each.module}.{each.name} is {constant}, and the page says {bound}"


UNNAMED = {
    "addons.offline.writes.journal.MAX_EVENTS": "tests/addons/offline/writes/test_journal.py::"
    "test_events_keep_their_order_and_the_oldest_go_when_there_are_too_many",
    "addons.proxy.connection_limits.MOST_DESCRIPTORS": "tests/addons/proxy/test_connection_limits.py::"
    "test_the_soft_limit_is_raised_as_far_as_the_system_allows",
    "addons.proxy.connection_limits.RESERVED_SHARE": "tests/addons/proxy/test_connection_limits.py::"
    "test_descriptors_are_left_to_the_plain_port",
    "addons.proxy.http.flow_control.READS_OF_CLIENT": "tests/addons/proxy/http/test_flow_control.py::"
    "test_a_client_with_many_servers_has_less_read_of_each",
    "addons.rules.events.PAUSE": "tests/addons/rules/test_events.py::"
    "test_between_two_events_there_is_a_pause",
    "addons.telemetry.metrics.COMPONENT_LIMIT": "tests/addons/telemetry/test_labels.py::"
    "test_names_that_others_choose_are_bounded",
    "addons.telemetry.metrics.PEER_LIMIT": "tests/addons/telemetry/test_labels.py::"
    "test_names_that_others_choose_are_bounded",
    "addons.ui.reports.rule_text.MAX_DEPTH": "tests/addons/ui/reports/test_rule_text.py::"
    "test_what_is_refused",
    "addons.ui.reports.rule_text.MAX_NODES": "tests/addons/ui/reports/test_rule_text.py::"
    "test_what_is_refused",
    "controllers.runtime.events.REPEAT_AFTER": "tests/controllers/runtime/test_events.py::"
    "test_the_same_is_not_said_twice",
    "kube.requests.label_syntax.MAX_NAME": "tests/kube/requests/test_label_syntax.py::test_invalid_keys",
    "kube.requests.label_syntax.MAX_PREFIX": "tests/kube/requests/test_label_syntax.py::test_invalid_keys",
}
"""Bounds that a test reaches without a word of the constant: by its number, or by a smaller one. The test that does."""

METRIC = re.compile(r"`(edgehub_\w+)(?:\{(?P<label>\w+)=\"(?P<value>[^\"]+)\"\})?`")
REACHED = re.compile(r"\breached\(\"([^\"]+)\"\)")
NO_METRIC = re.compile(r"none: \w")
"""The hub drops and refuses nothing at the bound, or tells a person at once. The reason follows."""


@pytest.mark.parametrize(
    "row", [row for table in tables_of_bounds() for row in table.rows], ids=lambda row: row[0]
)
def test_a_metric_counts_when_a_bound_is_reached(row: tuple[str, ...]) -> None:
    known = samples(metrics.REGISTRY) | samples(controllers.runtime.metrics.REGISTRY)
    found = METRIC.search(row[3])
    assert found or NO_METRIC.match(row[3]), f"the row of {row[0]!r} names no metric, and no reason for none"
    if found:
        assert found[1] in known, f"there is no metric {found[1]}"
        assert {found["label"]} - {None} <= known[found[1]]


def test_each_bound_that_the_code_tells_has_its_row() -> None:
    told = {bound for path in room_modules() for bound in REACHED.findall(path.read_text())}
    named = {
        found["value"]
        for table in tables_of_bounds()
        for row in table.rows
        if (found := METRIC.search(row[3])) and found[1] == "edgehub_bounds_reached_total"
    }
    assert told == named


def test_a_test_reaches_each_bound() -> None:
    """By the name of its constant: in full, or imported from its module, or of the module that it imports."""
    modules = (path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "repository")
    said = [set(WORD.findall(path.read_text())) for path in modules]
    unreached = {
        f"{each.module}.{each.name}"
        for _, cell in rows()
        for each in bounds(cell)
        if not any({each.name, each.module.rpartition(".")[2]} <= words for words in said)
    }
    assert not unreached - set(UNNAMED), "no test names " + ", ".join(sorted(unreached - set(UNNAMED)))
    assert set(UNNAMED) <= unreached


@pytest.mark.parametrize("test", sorted(set(UNNAMED.values())))
def test_a_test_that_reaches_a_bound_by_its_number_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


NO_BOUNDS = {
    "addons.offline.writes.replay.MAX_CONFLICTS": "tries of one write, which then waits",
}
"""Constants named as bounds that bound nothing that others can make grow: why. The table can only shrink."""


def constants() -> set[str]:
    """The constants of the product that are named as bounds."""
    return {
        f"{label(path).removesuffix('.py').replace('/', '.')}.{name}"
        for path in room_modules()
        for node in parse(path).body
        for name in assigned(node)
        if name.startswith("MAX_")
    }


def assigned(node: ast.stmt) -> list[str]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def test_each_bound_of_the_code_is_on_the_page() -> None:
    told = {f"{each.module}.{each.name}" for _, cell in rows() for each in bounds(cell)}
    missing = constants() - told - set(NO_BOUNDS)
    assert not missing, "docs/security.md has no row for " + ", ".join(sorted(missing))
    assert set(NO_BOUNDS) <= constants() - told


def test_there_are_tables_of_bounds() -> None:
    assert len(tables_of_bounds()) > 4


def test_bounds_of_a_cell() -> None:
    cell = "3 MiB (`a.b.MAX_BODY`), 5,000 answers of a node (`a.MAX`) or 0.5 s (`c.WAIT_1`); not 7"
    assert list(bounds(cell)) == [
        Bound(3, 2**20, "a.b", "MAX_BODY"),
        Bound(5000, 1, "a", "MAX"),
        Bound(0.5, 1, "c", "WAIT_1"),
    ]


@pytest.mark.parametrize(("constant", "true"), [(2 * 3600, True), (2, True), (2 * 60, False)])
def test_a_number_and_its_unit(constant: float, true: bool) -> None:
    (bound,) = bounds("2 hours (`a.LONGEST`)")
    assert bound.is_of(constant) is true
