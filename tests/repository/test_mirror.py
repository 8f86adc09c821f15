"""Tests mirror the sources: the same folders, and the same files with `test_` before their names."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.repository.support.tree import ROOT, label, parse, room_modules

EXCEPTIONS: dict[str, str] = {}
"""Module without a test of its own: the reason. One that is no longer needed fails, so this only shrinks."""


def mirror(module: Path) -> Path:
    """Where the tests of a module are."""
    return ROOT / "tests" / module.relative_to(ROOT).with_name(f"test_{module.name}")


def says_something(module: Path) -> bool:
    """Whether a module holds more than prose, imports and names of types, in which nothing can go wrong."""
    silent = (ast.Expr, ast.Import, ast.ImportFrom, ast.TypeAlias)
    return not all(isinstance(node, silent) for node in parse(module).body)


def missing_tests() -> set[str]:
    """Modules of the product that have no test file."""
    return {label(path) for path in room_modules() if says_something(path) and not mirror(path).exists()}


def test_each_module_has_its_tests() -> None:
    missing = missing_tests() - set(EXCEPTIONS)
    assert not missing, "\n".join(sorted(missing))


def test_each_exception_is_needed() -> None:
    assert set(EXCEPTIONS) - missing_tests() == set()


def test_the_mirror_keeps_the_path() -> None:
    assert (
        label(mirror(ROOT / "addons/filters/builtin/endpoints.py"))
        == "tests/addons/filters/builtin/test_endpoints.py"
    )
