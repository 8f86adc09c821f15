"""The page on architecture lists import-linter's packages, in order, and the classes derived from mitmproxy."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.repository.support.tree import ROOT

CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
LAYERS = {each["containers"][0]: each["layers"] for each in CONTRACTS if each["type"] == "layers"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the page's table whose first heading is this one."""
    table = (
        (ROOT / "docs" / "architecture.md").read_text().partition(f"| {heading} |")[2].partition("\n\n")[0]
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("package", LAYERS)
def test_the_page_has_the_layers_of_a_package(package: str) -> None:
    documented = [set(re.findall(r"`(\w+)", row[0])) for row in rows(f"packages of `{package}/`")]
    assert documented == [set(re.findall(r"\w+", layer)) for layer in LAYERS[package]]


def derived_classes() -> dict[str, tuple[str, set[str]]]:
    """Return, for each class of the hub derived from mitmproxy's or h2's: its base class and overrides."""
    found = {}
    for path in [*(ROOT / "addons" / "proxy").rglob("*.py"), *(ROOT / "addons" / "server").rglob("*.py")]:
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for own in vars(module).values():
            if isinstance(own, type) and own.__module__ == module.__name__ and (base := library_base(own)):
                methods = {
                    name
                    for name, value in vars(own).items()
                    if name in dir(base) and name != "__init__" and is_written(value)
                }
                if methods:
                    full_name = f"{base.__module__}.{base.__qualname__}"
                    found[f"{own.__module__}.{own.__qualname__}"] = full_name, methods
    return found


def library_base(own: type) -> type | None:
    """Return the nearest base class of a library that the hub derives from."""
    bases = [each for each in own.__mro__ if each.__module__.partition(".")[0] in ("mitmproxy", "h2")]
    return bases[0] if bases else None


def is_written(value: object) -> bool:
    """Whether this is a method that the source has, and none that a dataclass made."""
    function = value.fget if isinstance(value, property) else value
    return inspect.isfunction(function) and Path(function.__code__.co_filename).is_relative_to(ROOT)


DERIVED = derived_classes()


def test_the_page_has_each_class_that_derives_from_mitmproxys() -> None:
    documented = {}
    for own, base, overridden, _ in rows("class of the hub"):
        documented[f"addons.{own.strip('`')}"] = (base.strip("`"), set(re.findall(r"`(\w+)`", overridden)))
    assert documented == DERIVED


@pytest.mark.parametrize(
    ("base", "method", "own"),
    [(base, method, own) for own, (base, methods) in DERIVED.items() for method in sorted(methods)],
    ids=lambda part: part.rpartition(".")[2],
)
def test_a_method_that_the_hub_overrides_is_what_the_hub_knows(base: str, method: str, own: str) -> None:
    """After a change in mitmproxy the difference names the changed methods."""

    def parameters(method: object) -> list[tuple[str, str, object]]:
        """Name, kind and default of each parameter, with no annotation."""
        if not callable(method):
            return []
        signature = inspect.signature(method)
        return [(each.name, each.kind.name, each.default) for each in signature.parameters.values()]

    def named(full_name: str) -> Any:
        module, _, name = full_name.rpartition(".")
        return getattr(import_module(module), name)

    found, known = (parameters(getattr(named(full_name), method)) for full_name in (base, own))
    assert found == known, f"{base}.{method} is {found} in this mitmproxy, and {known} in {own}"
