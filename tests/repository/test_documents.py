"""Documents stay true: each path, option and identifier that prose puts in backticks exists in the tree.

Prose is the README, docs, the comments of the ConfigMaps and every docstring. Checked are: paths that begin
with a top-level folder, names of Python files, single tests, dotted names of our packages, names with an underscore, an
inner capital or call brackets, and options of our scripts. Other words in backticks are free.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.repository.support.tree import (
    EXAMPLES,
    ROOMS,
    ROOT,
    code_lines,
    files,
    known_words,
    label,
    modules,
    parse,
    prose,
    scripts,
)

PATH = re.compile(r"(?:addons|kube|controllers|configmaps|scripts|tests|docs|requirements|\.ci)/[\w./*-]*")
ONE_TEST = re.compile(r"(?P<path>tests/[\w/]+\.py)::(?P<name>test_\w+)")
PYTHON_FILE = re.compile(r"\w+\.py")
DOTTED = re.compile(rf"(?:{'|'.join((*ROOMS, 'tests'))})(?:\.\w+)+(?:\(\))?")
IDENTIFIER = re.compile(r"(?P<name>[A-Za-z]\w*)(?P<call>\(\))?(?:\{[\w,]*\})?")
"""A name, with call brackets or with a metric's labels."""
OPTION = re.compile(r"--(?!help$)[a-z][a-z-]+")
SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)\1", re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


class Mention(NamedTuple):
    """Something that prose speaks of, and where."""

    path: Path
    line: int
    text: str


def texts() -> Iterator[tuple[Path, int, str]]:
    """(file, line, text) of all prose."""
    for path in files():
        parts = path.relative_to(ROOT).parts
        if path.suffix == ".md" and (len(parts) == 1 or parts[0] == "docs"):
            yield path, 1, path.read_text()
        elif parts[0] == "configmaps" and path.suffix in {".yaml", ".yml"}:
            comments = (
                line if line.lstrip().startswith("#") else "" for line in path.read_text().splitlines()
            )
            yield path, 1, "\n".join(comments)
    for path in modules():
        for line, text in prose(parse(path)):
            yield path, line, text


def spans(text: str) -> Iterator[tuple[int, str]]:
    """(lines before it, what stands in backticks); a fenced block gives each of its words that is a path."""
    for found in BLOCK.finditer(text):
        for word in re.finditer(r"\S+", found[0]):
            if PATH.match(word[0]):
                yield text.count("\n", 0, found.start() + word.start()), word[0].rstrip(".,:;")
    plain = BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in SPAN.finditer(plain):
        yield plain.count("\n", 0, found.start()), found[2].strip()


def exists(path: str) -> bool:
    """Whether a path of the tree, `*` allowed, exists."""
    return bool(list(ROOT.glob(path))) if "*" in path else (ROOT / path).exists()


def resolves(dotted: str) -> bool:
    """Whether a dotted name leads to a module, to something that a module defines, or to a member of its class."""
    parts = dotted.removesuffix("()").split(".")
    for length in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:length])
        module = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
        if module.exists():
            return leads_to(parse(module).body, parts[length:])
    return False


def leads_to(body: list[ast.stmt], path: list[str]) -> bool:
    """Whether names, one within the other, are defined in a module's or class's body."""
    if not path:
        return True
    name, *rest = path
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return leads_to(node.body, rest)
    return not rest and name in defined(body)


def defined(body: list[ast.stmt]) -> set[str]:
    """Names that a module or class defines, with the attributes that a class's methods give to `self`."""
    found: set[str] = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found |= {name, *attributes(node)}
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.TypeAlias(name=ast.Name(id=name)):
                found.add(name)
    return found


def attributes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What a method assigns to `self`."""
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


@cache
def option_tables() -> str:
    """The code that declares or understands options."""
    codes = (path for path in files() if path.suffix == ".py" or path in scripts())
    return "\n".join(code_lines(path.read_text()) for path in codes if path != EXAMPLES)


def is_option(flag: str) -> bool:
    """Whether a script or an option table of ours knows a flag such as --tls-port."""
    spellings = (flag, f'"{flag[2:]}"', f'"{flag[2:].replace("-", "_")}"')
    return any(spelling in option_tables() for spelling in spellings)


@cache
def is_true(span: str) -> bool:
    """Whether what a span in backticks names exists in the tree."""
    command = span.split()
    if PATH.fullmatch(command[0]) and len(command) > 1:
        mitmproxys = command.index("--") if "--" in command else len(command)
        own = (word.partition("=")[0].strip("[]") for word in command[1:mitmproxys])
        return exists(command[0]) and all(is_option(word) for word in own if OPTION.fullmatch(word))
    if PATH.fullmatch(span):
        return exists(span)
    if one_test := ONE_TEST.fullmatch(span):
        path = ROOT / one_test["path"]
        return path.exists() and one_test["name"] in defined(parse(path).body)
    if PYTHON_FILE.fullmatch(span):
        return any(path.name == span for path in files())
    if DOTTED.fullmatch(span):
        return resolves(span)
    if OPTION.fullmatch(span):
        return is_option(span)
    found = IDENTIFIER.fullmatch(span)
    if found and (found["call"] or re.search(r"_|[a-z][A-Z]", found["name"])):
        return knows(found["name"])
    return True


def knows(name: str) -> bool:
    """Whether the code has a name, or makes it: a metric's by adding an ending, an option's a beginning."""
    return not known_words().isdisjoint({name, name.removesuffix("_total"), name.removeprefix("hub_")})


def mentions() -> Iterator[Mention]:
    """Everything in backticks."""
    for path, line, text in texts():
        for lines_before, span in spans(text):
            if span:
                yield Mention(path, line + lines_before, span)


def test_what_documents_name_exists() -> None:
    wrong = [f"{label(path)}:{line}: `{span}`" for path, line, span in mentions() if not is_true(span)]
    assert not wrong, "\n".join(wrong)


def test_prose_is_found() -> None:
    assert any(mention.path.name == "README.md" and mention.text == "scripts/demo" for mention in mentions())


def test_spans_of_a_document() -> None:
    text = "one `kube/` and ``two``\n```sh\nscripts/nowhere --x, and words\n```\n`a\nb`"
    assert list(spans(text)) == [(2, "scripts/nowhere"), (0, "kube/"), (0, "two"), (4, "a\nb")]


@pytest.mark.parametrize(
    ("span", "true"),
    [
        ("scripts/test", True),
        ("scripts/nowhere", False),
        ("scripts/test --real -k selectors", True),
        ("scripts/test --no-such-option", False),
        ("scripts/test -- --no-such-option", True),
        ("tests/repository/test_*.py", True),
        ("tests/nowhere/*.py", False),
        ("tests/repository/test_documents.py::test_prose_is_found", True),
        ("tests/repository/test_documents.py::test_nothing", False),
        ("tests/repository/nowhere.py::test_prose_is_found", False),
        ("tree.py", True),
        ("nowhere.py", False),
        ("tests.repository.support.tree.known_words()", True),
        ("tests.repository.support.tree.nothing", False),
        ("tests.repository.test_documents.Mention.path", True),
        ("tests.repository.test_documents.Mention.nothing", False),
        ("kube.store.store.Store.advance()", True),
        ("kube.store.store.Store.version", True),
        ("tests.nowhere", False),
        ("known_words", True),
        ("known_words()", True),
        ("known_nothing()", False),
        ("known_nothing{label}", False),
        ("known_words_total{label}", True),
        ("known_nothing", False),
        ("--real", True),
        ("--no-such-option", False),
        ("spec.clusterIP", True),
        ("503", True),
        ("kubectl get --no-such-option", True),
    ],
)
def test_what_counts_as_true(span: str, true: bool) -> None:
    assert is_true(span) is true
