"""The locks are complete, have digests, name no machine, and exclude the other package named edgehub."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.repository.support.tree import ROOT, label

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
ENTRY = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>[\w.!+]+)(?: ; [^\\]+)? \\")
DIGEST = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}(?: \\)?")


def pins(lock: Path) -> set[tuple[str, str]]:
    """Return the packages in a lock, with their versions."""
    entries = map(ENTRY.fullmatch, lock.read_text().splitlines())
    return {(found["name"], found["version"]) for found in entries if found}


def names(lock: Path) -> set[str]:
    """Return the packages in a lock."""
    return {name for name, _ in pins(lock)}


def packages(requirements: list[str]) -> set[str]:
    """Return the normalised names in requirements."""
    return {re.split(r"[^\w.-]", text)[0].lower().replace("_", "-") for text in requirements}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _all(text: dict[str, Any]) -> list[str]:
    """Return every requirement except Go's."""
    project, groups = text["project"], text["dependency-groups"]
    return [*project["dependencies"], *groups["build"], *groups["test"]]


@pytest.fixture(scope="module")
def wanted() -> dict[str, set[str]]:
    """Return the packages that pyproject.toml requires, by the lock that contains them."""
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
def test_a_lock_contains_only_versions_and_digests(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    assert lines[0].startswith("# Made by scripts/lock")
    assert [line for line in lines[1:] if not ENTRY.fullmatch(line) and not DIGEST.fullmatch(line)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=label)
def test_a_lock_does_not_contain_the_other_package_named_edgehub(lock: Path) -> None:
    assert "edgehub" not in names(lock)


def test_each_dependency_is_locked(wanted: dict[str, set[str]]) -> None:
    assert {lock.stem for lock in LOCKS} == set(wanted)
    missing = {lock.stem: wanted[lock.stem] - names(lock) for lock in LOCKS}
    assert missing == {stem: set() for stem in wanted}


def test_the_locks_of_a_checkout_can_share_one_environment() -> None:
    """The manager's packages once had other versions, and so a separate environment."""
    sets = {stem: pins(ROOT / f"requirements/{stem}.lock") for stem in ("hub", "test", "manager")}
    versions: dict[str, set[str]] = {}
    for name, version in set().union(*sets.values()):
        versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
    manager = pyproject()["project"]["optional-dependencies"]["manager"]
    assert packages(manager) <= {name for name, _ in sets["manager"]}


def test_locked_dependencies_of_the_hub_lack_kubernetes() -> None:
    assert "kubernetes" not in names(ROOT / "requirements/hub.lock")
    assert "kubernetes" not in packages(pyproject()["project"]["dependencies"])
    assert "mitmproxy" not in names(ROOT / "requirements/manager.lock")


def test_the_project_does_not_require_itself(wanted: dict[str, set[str]]) -> None:
    assert "edgehub" not in set().union(*wanted.values())


def test_the_lowest_lock_contains_the_lowest_versions() -> None:
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
