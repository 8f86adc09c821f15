"""The tables that the pages have from the code, as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.registry import CollectorRegistry

import controllers.runtime.metrics
import controllers.settings
from addons import command
from addons.telemetry import metrics
from kube.option import Option, grouped

DOCS = Path(__file__).parents[2] / "docs"
VALUES = Path(__file__).parents[2] / "deploy" / "chart" / "values.yaml"
KEY = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?P<rest>.*)$")


def values() -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each value, from the comment before or after it."""
    tree = yaml.safe_load(VALUES.read_text())
    path: list[str] = []
    above: list[str] = []
    for line in VALUES.read_text().split("\n\n", 1)[1].splitlines():
        if not line.strip():
            above.clear()
        elif line.lstrip().startswith("#"):
            above.append(line.lstrip(" #"))
        elif match := KEY.match(line):
            path = [*path[: len(match["indent"]) // 2], match["name"]]
            _, _, behind = match["rest"].partition(" # ")
            value = _at(tree, path)
            if value is not None and not (isinstance(value, dict) and value):
                yield ".".join(path), json.dumps(value), behind.strip() or " ".join(above)
            elif above:
                yield ".".join(path), "", " ".join(above)
            above.clear()


def _at(tree: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree


def options(own: Sequence[Option]) -> Iterator[str]:
    """Format a table of options for each group."""
    for heading, those in grouped(own):
        yield f"### {heading}\n"
        rows = (
            (f"`{option.flag}`", _default_cell(option.default_text), _flags(option.text)) for option in those
        )
        yield from _table(("option", "default", "meaning"), rows)
        yield ""


def _flags(text: str) -> str:
    return re.sub(r"\bhub_[a-z_]+", lambda match: f"`--{match[0][4:].replace('_', '-')}`", text)


def _default_cell(default: str) -> str:
    """Format a default value as code; a rule as it is."""
    return (
        f"`{default}`" if re.fullmatch(r"[\w./*-]+", default) and "hub_" not in default else _flags(default)
    )


def samples(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Return every sample name of a registry, with its labels."""
    return {
        name: set(getattr(collector, "_labelnames", ()))
        for name, collector in registry._names_to_collectors.items()
    }


def shown_names(registry: CollectorRegistry) -> dict[str, str]:
    """Return the help text of each metric, by its name in Prometheus."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in registry.collect()
    }


def measured(registry: CollectorRegistry) -> Iterator[str]:
    labels = {
        name: getattr(collector, "_labelnames", ())
        for name, collector in registry._names_to_collectors.items()
    }
    rows = (
        (f"`{name}{{{','.join(labels[name])}}}`" if labels[name] else f"`{name}`", text)
        for name, text in shown_names(registry).items()
    )
    return _table(("metric", "meaning"), rows)


def _table(heading: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield "|---" * len(heading) + "|"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def chart_values() -> Iterator[str]:
    rows = ((f"`{name}`", f"`{default}`" if default else "", text) for name, default, text in values())
    return _table(("value", "default", "what it is for"), rows)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "options": lambda: options(command.FLAGS),
    "manager options": lambda: options(controllers.settings.OPTIONS),
    "metrics": lambda: measured(metrics.REGISTRY),
    "manager metrics": lambda: measured(controllers.runtime.metrics.REGISTRY),
    "chart values": chart_values,
}
"""The functions that make the tables, by their names in pages."""
