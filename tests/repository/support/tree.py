"""Finds the files of the repository."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

PACKAGES = ("kube", "addons", "controllers")
"""Packages of the product."""

LEFT_OUT = {"__pycache__", "build", "dist"}
"""Folders created by programs. Folders whose name begins with a dot are left out too, except `.ci`."""

LOCAL_FILES = {".venv.lock", ".git"}
"""Files that belong to one checkout; a worktree's `.git` is a file that names a folder of the machine."""


@cache
def files() -> tuple[Path, ...]:
    """Yield every file of the repository, except caches and the like."""
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
def product_modules() -> tuple[Path, ...]:
    """Every Python file of the product."""
    return tuple(path for path in modules() if path.relative_to(ROOT).parts[0] in PACKAGES)


@cache
def program_modules() -> tuple[Path, ...]:
    """Every Python file of the product, and of the programs of `scripts/`."""
    return tuple(path for path in modules() if path.relative_to(ROOT).parts[0] in {*PACKAGES, "scripts"})


@cache
def scripts() -> tuple[Path, ...]:
    """Every file that begins with a shebang."""
    return tuple(path for path in files() if path.read_bytes()[:2] == b"#!")


def label(path: Path) -> str:
    """Return the path within the repository, by which failures and parameters name a file."""
    return path.relative_to(ROOT).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(), str(path))
