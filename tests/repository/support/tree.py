"""Finds the files of the repository, and the words that its code knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

ROOMS = ("kube", "addons", "controllers")
"""Packages of the product."""

EXAMPLES = ROOT / "tests" / "repository" / "test_documents.py"
"""Holds examples of names that exist nowhere; what it says proves nothing."""

LEFT_OUT = {"__pycache__", "build", "dist"}
"""Folders that programs make. Folders whose name begins with a dot are left out too, but for `.ci`."""

LOCAL_FILES = {".venv.lock", ".git"}
"""Files that belong to one checkout; a worktree's `.git` is a file that names a folder of the machine."""

WORD = re.compile(r"[A-Za-z_]\w*")


@cache
def files() -> tuple[Path, ...]:
    """Every file of the repository, caches and the like left out."""
    return tuple(sorted(_walk(ROOT)))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in LEFT_OUT and not path.name.endswith(".egg-info"):
                yield from _walk(path)
        elif path.name not in LOCAL_FILES:
            yield path


@cache
def modules() -> tuple[Path, ...]:
    """Every Python file."""
    return tuple(path for path in files() if path.suffix == ".py")


@cache
def room_modules() -> tuple[Path, ...]:
    """Every Python file of the product."""
    return tuple(path for path in modules() if path.relative_to(ROOT).parts[0] in ROOMS)


@cache
def program_modules() -> tuple[Path, ...]:
    """Every Python file of the product, and of the programs behind `scripts/`."""
    return tuple(path for path in modules() if path.relative_to(ROOT).parts[0] in {*ROOMS, "scripts"})


@cache
def scripts() -> tuple[Path, ...]:
    """Every file that begins with a shebang."""
    return tuple(path for path in files() if path.read_bytes()[:2] == b"#!")


def label(path: Path) -> str:
    """The path within the repository: how failures and parameters name a file."""
    return path.relative_to(ROOT).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(), str(path))


@cache
def prose(module: ast.Module) -> tuple[tuple[int, str], ...]:
    """(line, text) of every string that stands alone: docstrings, those of constants included."""
    return tuple(
        (node.lineno, node.value.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def names(module: ast.Module) -> Iterator[str]:
    """Every identifier of a syntax tree, and every word of the strings that are not prose."""
    told: set[int] = set()
    for node in ast.walk(module):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                told.add(id(text))  # the walk comes to what a node holds after the node
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from WORD.findall(f"{name} {other or ''}")
            case ast.Constant(value=str(text)) if id(node) not in told:
                yield from WORD.findall(text)


def code_lines(text: str) -> str:
    """A script's, a manifest's or a configuration's text without the lines that are comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", "//")))


@cache
def known_words() -> frozenset[str]:
    """Every word that occurs in code, manifests or configuration, as opposed to prose."""
    words = {path.stem for path in files()}
    for path in files():
        if path.suffix == ".py" and path != EXAMPLES:
            words.update(names(parse(path)))
        elif path.suffix not in {".py", ".md", ".lock", ".sum"} and "fixtures" not in path.parts:
            words.update(WORD.findall(code_lines(path.read_text(errors="replace"))))
    return frozenset(words)
