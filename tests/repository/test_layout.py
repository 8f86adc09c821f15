"""The contents of `addons/`, `scripts/` and `tests/`, the size of folders, and the uniqueness of names."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.repository.support.tree import (
    PACKAGES,
    ROOT,
    label,
    modules,
    parse,
    product_modules,
    program_modules,
)

SHARED_NAMES = {"Settings": "those of the hub, and those of the manager: two programs"}
"""Names of more than one class, with their meaning. An unneeded entry fails, so the table only shrinks."""


def packages() -> dict[Path, tuple[int, int]]:
    """Return the number of modules, without `__init__`, and of sub-packages, in each package of product and scripts."""
    folders = {path.parent for path in program_modules()}
    return {
        folder: (
            sum(path.parent == folder and path.stem != "__init__" for path in program_modules()),
            sum(other.parent == folder for other in folders),
        )
        for folder in folders
    }


def test_addons_contains_only_addons_and_the_modules_that_start_them() -> None:
    def listed_addons(hub: Path) -> set[str]:
        """Return the modules directly in `addons/` that the addon list imports."""
        return {
            node.module.partition(".")[2]
            for node in ast.walk(parse(hub))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.count(".") == 1
        }

    here = {path.stem for path in (ROOT / "addons").glob("*.py")} - {"__init__"}
    # Other modules directly in `addons/`: the addon list, and the modules that start addons.
    beside_the_addons = frozenset({"hub", "options", "parts", "settings", "command"})
    assert here - beside_the_addons == listed_addons(ROOT / "addons" / "hub.py") - beside_the_addons
    assert here >= beside_the_addons


def test_scripts_contains_only_commands() -> None:
    assert [label(path) for path in modules() if path.parent == ROOT / "scripts"] == []


def test_the_number_of_modules_in_a_package_is_bounded() -> None:
    # The maximum of modules, or of sub-packages, in one package.
    most_entries = 13
    large = {label(path): max(counts) for path, counts in packages().items() if max(counts) > most_entries}
    # Packages with more modules: the number, and the reason. A number that is too high fails, so they only shrink.
    large_packages = {
        "addons": (15, "one addon a module, and what starts them"),
        "addons/filters/builtin": (14, "one filter a module, and what they share"),
    }
    assert large == {name: count for name, (count, _) in large_packages.items()}


def test_each_package_documents_its_contents() -> None:
    silent = [
        label(folder)
        for folder in packages()
        if not (folder / "__init__.py").exists() or not ast.get_docstring(parse(folder / "__init__.py"))
    ]
    assert not silent, "\n".join(sorted(silent))


def test_no_two_classes_of_the_product_share_a_name() -> None:
    def shared_names(paths: Iterable[Path]) -> dict[str, list[str]]:
        """Each class or type name at the top level of more than one module, with the modules."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for path in paths:
            for node in parse(path).body:
                match node:
                    case ast.ClassDef(name=str(name)) | ast.TypeAlias(name=ast.Name(id=name)):
                        found[name].append(label(path))
        return {name: where for name, where in found.items() if len(where) > 1}

    shared = shared_names(product_modules())
    assert set(shared) == set(SHARED_NAMES), shared


def test_no_two_modules_of_the_product_share_a_name() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in product_modules():
        if path.stem != "__init__":
            found[path.stem].append(label(path))
    shared = {name: where for name, where in found.items() if len(where) > 1}
    # Names of more than one module, with their common meaning. An unneeded entry fails.
    shared_modules = {
        "admin": "the admin port of the hub, and the manager's",
        "metrics": "those of the hub, and those of the manager",
        "node_pools": "the kind NodePool, and what the manager reads from one",
        "settings": "those of the hub, and those of the manager",
    }
    assert set(shared) == set(shared_modules), shared


def test_helpers_of_tests_are_in_separate_folders() -> None:
    # Folders of `tests/` with helpers, next to the helpers' own tests.
    helpers = frozenset({"support", "clients", "cloud", "fixtures", "fuzz", "histories", "wrong_clock"})
    among = [
        label(path)
        for path in modules()
        if path.is_relative_to(ROOT / "tests")
        and not path.name.startswith("test_")
        and path.stem not in {"__init__", "conftest"}
        and helpers.isdisjoint(path.relative_to(ROOT).parts)
    ]
    assert not among, "\n".join(among)


def test_the_import_order_of_all_packages_is_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = {
        container
        for each in contracts
        # A contract that is not exhaustive could omit a package.
        if each["type"] == "layers" and each.get("exhaustive")
        for container in each["containers"]
    }
    assert layered >= set(PACKAGES)
    (cycles,) = (each for each in contracts if each["type"] == "acyclic_siblings")
    assert set(cycles["ancestors"]) == set(PACKAGES)
