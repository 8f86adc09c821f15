"""Names of the product, of its programs and of the tests are the field's terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.repository.support.tree import ROOT, label, modules, parse

BANNED = {"kept", "place", "room", "told", "turn", "way", "whole", "word"}
"""Private terms that had another meaning in each module. The field has a name for each of them, such as cached or
lock."""


_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_banned(name: str) -> bool:
    """Return True if a name has one of these terms, or its plural, as a part."""
    return any({part, part.removesuffix("s")} & BANNED for part in map(str.lower, _PART.findall(name)))


def test_no_name_is_a_private_term() -> None:
    """Names of test functions are sentences, so they may contain any word."""

    def defined(module: ast.Module) -> Iterator[str]:
        """Yield the names of classes, functions, parameters, attributes and variables that a module defines."""
        for node in ast.walk(module):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield name
                case ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)):
                    yield name
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    yield name

    names = {
        (label(path), name)
        for path in modules()
        for name in (path.stem, *path.relative_to(ROOT).parts[:-1], *defined(parse(path)))
        if is_banned(name) and not name.startswith("test_")
    }
    # Names that filters in operators' own files import (docs/filters.md), and a value of the metrics' label `outcome`.
    forced = {("addons/filters/verdict.py", "KEPT"), ("addons/filters/verdict.py", "kept")}
    assert names == forced


@pytest.mark.parametrize("name", ["kept", "has_room", "PodWords", "_own_ways", "MAX_KEPT", "told_in_whole"])
def test_a_private_term_is_found(name: str) -> None:
    assert is_banned(name)


@pytest.mark.parametrize("name", ["returned", "placement", "always", "wholesale", "keeps", "keyword"])
def test_a_term_inside_a_longer_name_is_accepted(name: str) -> None:
    assert not is_banned(name)
