"""The locks are complete, hold digests, name no place, and do not hold the stranger that has our name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.repository.support.tree import ROOT, label

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
ENTRY = re.compile(r"(?P<name>[a-z0-9.-]+)==[\w.!+]+(?: ; [^\\]+)? \\")
DIGEST = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}(?: \\)?")


def names(lock: Path) -> set[str]:
    """The packages of a lock."""
    return {found["name"] for found in map(ENTRY.fullmatch, lock.read_text().splitlines()) if found}


def packages(requirements: list[str]) -> set[str]:
    """The normalised names in requirements."""
    return {re.split(r"[^\w.-]", text)[0].lower().replace("_", "-") for text in requirements}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _all(text: dict[str, Any]) -> list[str]:
    """Every requirement but Go's."""
    project, groups = text["project"], text["dependency-groups"]
    return [*project["dependencies"], *groups["build"], *groups["test"]]


@pytest.fixture(scope="module")
def wanted() -> dict[str, set[str]]:
    """The packages that pyproject.toml asks for, by the lock that holds them."""
    text = pyproject()
    project, groups = text["project"], text["dependency-groups"]
    return {
        "hub": packages(project["dependencies"] + groups["build"]),
        "test": packages(groups["test"]),
        "fuzz": packages(groups["fuzz"]),
        "go": packages(groups["go"]),
        "manager": packages(groups["manager"] + groups["build"]),
        "site": packages(groups["site"] + groups["build"]),
        "lowest": packages(_all(text)),
    }


@pytest.mark.parametrize("lock", LOCKS, ids=label)
def test_a_lock_holds_versions_and_digests_only(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    assert lines[0].startswith("# Made by scripts/lock")
    assert [line for line in lines[1:] if not ENTRY.fullmatch(line) and not DIGEST.fullmatch(line)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=label)
def test_a_lock_does_not_hold_the_package_that_has_our_name(lock: Path) -> None:
    assert "edgehub" not in names(lock)


def test_what_the_project_wants_is_locked(wanted: dict[str, set[str]]) -> None:
    assert {lock.stem for lock in LOCKS} == set(wanted)
    missing = {lock.stem: wanted[lock.stem] - names(lock) for lock in LOCKS}
    assert missing == {stem: set() for stem in wanted}


def test_the_project_never_wants_itself(wanted: dict[str, set[str]]) -> None:
    assert "edgehub" not in set().union(*wanted.values())


def test_the_lowest_lock_holds_the_lowest_versions() -> None:
    bounds = {
        re.split(r"[^\w.-]", text)[0].lower(): found[1]
        for text in _all(pyproject())
        if (found := re.search(r">=([\d.]+)", text))
    }
    locked = dict(
        re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements/lowest.lock").read_text(), re.MULTILINE)
    )
    assert len(bounds) > 10
    higher = {
        name: (bound, locked[name])
        for name, bound in bounds.items()
        if not f"{locked[name]}.".startswith(f"{bound}.")
    }
    assert higher == {}, "raise the bound to what is really the lowest"
