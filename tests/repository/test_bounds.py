"""Each number of the page on security is the one that the code has: a row names its constant behind the number."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.repository.support.pages import DOCS, Table, tables
from tests.repository.support.tree import label, parse, room_modules

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
