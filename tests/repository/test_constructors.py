"""How many values a class is made of: collaborators that belong together are one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.repository.support.tree import label, parse, program_modules

MOST_PARAMETERS = 6
"""Parameters of a constructor beside `self`. Records of data, whose constructors are generated, may have more."""

LARGE_CONSTRUCTORS = {
    "CachedRelay": (12, "relays, keeps what passes, and answers by what the node has"),
    "Garbage": (8, "copies, answers and callers are deleted each by its own rule"),
    "LeaderSelector": (10, "holds the settings of this hub's peer port, and a clock of its own"),
    "LiveWatch": (8, "a flow, its stream, and the ways to show it"),
    "Pool": (9, "opens the port, holds what is shared, and follows the facts"),
    "Storm": (7, "a node of the benchmark, its cloud and its figures"),
}
"""Classes that are made of more: of how many, and why. A number that is too high fails, so they only shrink."""


def constructors(path: Path) -> Iterator[tuple[str, int]]:
    """Each class with a constructor of its own, and how many values it takes."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    given = (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)
                    yield node.name, len(given) - 1


def test_no_class_is_made_of_more_than_a_reader_takes_in() -> None:
    large = {
        name: (count, label(path))
        for path in program_modules()
        for name, count in constructors(path)
        if count > MOST_PARAMETERS
    }
    expected = {name: count for name, (count, _) in LARGE_CONSTRUCTORS.items()}
    assert {name: count for name, (count, _) in large.items()} == expected, large
