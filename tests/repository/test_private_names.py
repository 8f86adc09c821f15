"""The product and its scripts import, read and write no private names of libraries."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest

from tests.repository.support.tree import label, modules, parse, program_modules

OWN = {"kube", "addons", "controllers", "edgehub", "scripts", "tests", "setup"}
"""Packages of the repository."""
DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Private names that Python documents: those of named tuples, and `os._exit`."""
LIBRARIES = {name for names in (packages_distributions(), sys.stdlib_module_names) for name in names}
DOTTED = re.compile(r"\w+(?:\.\w+)+")
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def is_foreign(dotted: str) -> bool:
    """Return True if a dotted name has a private part and begins with a package outside the repository."""
    root, *parts = dotted.split(".")
    return root not in OWN and root != "__future__" and any(map(is_private, (root, *parts)))


def private_imports(module: ast.Module) -> Iterator[str]:
    """Return private modules of libraries, and private names in their modules, that a module imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (f"{node.lineno}: {name.name}" for name in node.names if is_foreign(name.name))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            dotted = (f"{node.module}.{name.name}" for name in node.names)
            yield from (f"{node.lineno}: {name}" for name in dotted if is_foreign(name))


def private_texts(module: ast.Module) -> Iterator[str]:
    """Return private names of libraries in strings, by which code could find or replace a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_of_library(node.value):
            yield f"{node.lineno}: {node.value}"


def _is_of_library(text: str) -> bool:
    is_dotted = DOTTED.fullmatch(text) is not None and text.partition(".")[0] in LIBRARIES
    return is_dotted and is_foreign(text)


def private_attributes(module: ast.Module) -> Iterator[str]:
    """Return private attributes of other objects that a module uses, except those that its own classes or functions
    define. `__dict__` has all of them. Without types the owner of an attribute is unknown: a name counts as the
    module's own if the module assigns it on `self` or `cls`, or defines it."""
    own = set(_defined(module)) | DOCUMENTED
    for node in ast.walk(module):
        name = _used(node)
        is_replaced = name == "__dict__" and isinstance(getattr(node, "ctx", None), ast.Store)
        if name is not None and (is_replaced or (is_private(name) and name not in own)):
            yield name


def _defined(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id  # a field of a class, or a name of the module
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _used(node: ast.AST) -> str | None:
    """Return the attribute that a node reads or writes on an object other than `self`."""
    if isinstance(node, ast.Attribute):
        return None if _is_self(node.value) else node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
        named = node.args[1] if len(node.args) > 1 else None
        return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else None
    return None


def _is_self(node: ast.expr) -> bool:
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in ("self", "cls"))


def test_nothing_imports_a_private_name_of_a_library() -> None:
    found = [f"{label(path)}:{name}" for path in modules() for name in private_imports(parse(path))]
    assert not found, "\n".join(found)


def test_no_text_has_a_private_name_of_a_library() -> None:
    found = [f"{label(path)}:{name}" for path in program_modules() for name in private_texts(parse(path))]
    assert not found, "\n".join(found)


def test_the_product_uses_no_private_attribute_of_a_library() -> None:
    found = {(label(path), name) for path in program_modules() for name in private_attributes(parse(path))}
    # Without these names argparse's arguments, and labels of metrics without series, cannot be enumerated. Help,
    # completion and docs need them, but no request does. The list may only shrink.
    exceptions = {
        ("kube/option.py", "_actions"),
        ("kube/option.py", "_SubParsersAction"),
        ("kube/option.py", "_choices_actions"),
        ("scripts/building/release.py", "_actions"),
        ("scripts/building/release.py", "_SubParsersAction"),
        ("scripts/documents/tables.py", "_labelnames"),
        ("scripts/documents/tables.py", "_names_to_collectors"),
    }
    assert found == exceptions, "\n".join(map(str, found ^ exceptions))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import ssl", []),
        ("import _ssl", ["1: _ssl"]),
        (
            "from mitmproxy.proxy.layers.http._hooks import HttpErrorHook",
            ["1: mitmproxy.proxy.layers.http._hooks.HttpErrorHook"],
        ),
        ("from aiohttp import _websocket", ["1: aiohttp._websocket"]),
        ("from addons.rules import _parse", []),
        ("from . import _near", []),
    ],
)
def test_private_imports_are_found(source: str, found: list[str]) -> None:
    assert list(private_imports(ast.parse(source))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("'mitmproxy.proxy.layers.http._http3'", ["1: mitmproxy.proxy.layers.http._http3"]),
        ("'mitmproxy.proxy.layers.quic', 'addons._own', 'a._file.txt'", []),
    ],
)
def test_private_texts_are_found(source: str, found: list[str]) -> None:
    assert list(private_texts(ast.parse(source))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("tls._ssl", ["_ssl"]),
        ("getattr(tls, '_ssl')", ["_ssl"]),
        ("stream._paused = True", ["_paused"]),
        ("flow.__dict__ = {'_backup': None}", ["__dict__"]),
        ("self._own, super()._theirs, pair._replace(a=1), type(x).__name__", []),
        ("class A:\n    def __init__(self, other): self._a = other._a", []),
    ],
)
def test_private_attributes_are_found(source: str, found: list[str]) -> None:
    assert list(private_attributes(ast.parse(source))) == found
