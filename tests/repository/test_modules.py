"""Rules for every Python file: docstrings, a bounded length, and a reason for each silenced check."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.option import VERSION
from tests.repository.support.tree import ROOT, label, modules, parse, product_modules, program_modules

LONGEST_MODULE = 400
"""The maximum lines of a module. A longer one has more than one concern."""

LONGEST_FUNCTION = 60
"""The maximum lines of a function in the product and its scripts: about a screen. Tests may be longer, due to their
tables."""

THIS = Path(__file__).resolve()
"""This file contains forbidden examples, so the line checks skip it."""

SILENCED = re.compile(
    r"#\s*(?:noqa|type:\s*ignore)\b(?::?\s*(?:\[[\w, -]+\]|[A-Z]+\d+(?:,\s*[A-Z]+\d+)*))?(?P<reason>.*)"
)
"""A comment that silences a check, and the text after its codes."""

RELATIVE = re.compile(r"(?:What|Who|Those|Of|As|Have|Has)\b")
"""Words that start an indirect description. A docstring begins with a verb or with the thing's standard name."""


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method of a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every docstring with its line: of modules, classes, functions and attributes."""
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value.strip()


def around(module: ast.Module) -> list[int]:
    """Return the lines of docstrings that begin with such a word."""
    return [line for line, text in docstrings(module) if RELATIVE.match(text)]


def unexplained(line: str) -> bool:
    """Return True if a line silences a check without a reason."""
    found = SILENCED.search(line)
    return found is not None and not re.search(r"[a-z]{2}", found["reason"])


def test_each_module_has_a_docstring() -> None:
    silent = [label(path) for path in modules() if not ast.get_docstring(parse(path))]
    assert not silent, "\n".join(silent)


def test_each_docstring_begins_with_a_verb_or_a_name() -> None:
    wrong = [f"{label(path)}:{line}" for path in modules() for line in around(parse(path))]
    assert not wrong, "\n".join(wrong)


def test_modules_are_short() -> None:
    lengths = {label(path): len(path.read_text().splitlines()) for path in modules()}
    long = [f"{name}: {length} lines" for name, length in lengths.items() if length > LONGEST_MODULE]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    lengths = {
        f"{label(path)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in program_modules()
        for node in functions(parse(path))
    }
    long = [f"{name}: {length} lines" for name, length in lengths.items() if length > LONGEST_FUNCTION]
    assert not long, "\n".join(long)


def test_only_one_module_defines_the_version() -> None:
    """The manager once reported a hard-coded version, which a release would have left unchanged."""
    alone = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    sources = [*program_modules(), ROOT / "pyproject.toml", ROOT / "setup.py"]
    assert [label(path) for path in sources if alone.search(path.read_text())] == ["kube/option.py"]


def test_a_silenced_check_has_a_reason() -> None:
    wrong = [
        f"{label(path)}: {line.strip()}"
        for path in modules()
        for line in path.read_text().splitlines()
        if path != THIS and unexplained(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_addon_is_named_like_a_module_of_the_standard_library() -> None:
    # mitmproxy puts the folder of addons/hub.py on the path, where such a name would hide the real module.
    addons = [path for path in product_modules() if path.parent.name == "addons" and path.stem != "__init__"]
    assert [label(path) for path in addons if path.stem in sys.stdlib_module_names] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("x = 1", False),
        ("x = f()  # noqa: S101", True),
        ("x = f()  # noqa: S101, S102", True),
        ("x = f()  # noqa: S101 - the value is ours", False),
        ("x = f()  # type: ignore[arg-type]", True),
        ("x = f()  # type: ignore[arg-type]  # the stub lacks None", False),
    ],
)
def test_a_suppression_needs_a_reason(line: str, wrong: bool) -> None:
    assert unexplained(line) is wrong


@pytest.mark.parametrize(
    "source",
    [
        '"""{0} a module is for."""',
        'class Store:\n    """{0} it is."""',
        'async def read() -> None:\n    """\n    {0} it does."""',
        'LIMIT = 3\n"""{0} many."""',
        'class Store:\n    def __init__(self) -> None:\n        self.size = 0\n        """{0}: bytes."""',
    ],
)
@pytest.mark.parametrize("opening", ["What", "Who", "Those", "Of", "As", "Have", "Has"])
def test_a_docstring_that_begins_with_an_indirect_description_is_found(source: str, opening: str) -> None:
    assert len(around(ast.parse(source.format(opening)))) == 1
    assert around(ast.parse(source.format(f"{opening}x"))) == []
    assert around(ast.parse(f'print("{opening} else")')) == []
