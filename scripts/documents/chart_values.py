"""The values of the chart as a table, from the file that says what each is for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

VALUES = Path(__file__).parents[2] / "deploy" / "chart" / "values.yaml"
KEY = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?P<rest>.*)$")


def values() -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of each value, which a comment above it or behind it says."""
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
