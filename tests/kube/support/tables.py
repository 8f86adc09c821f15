"""The objects of `fixtures/tables.yaml` by kind and name, and what a Table has in the cells of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kube.json_type import Json
from kube.tables.server_table import table

STATUSES = Path(__file__).parents[1] / "fixtures" / "tables.yaml"


def objects() -> dict[tuple[str, str], Json]:
    """By kind and name."""
    found = yaml.safe_load_all(STATUSES.read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def cells(obj: Json) -> dict[str, Any]:
    """The cells of an object by their columns."""
    made = table([obj], obj["apiVersion"], obj["kind"], {}, "None")
    return dict(
        zip((each["name"] for each in made["columnDefinitions"]), made["rows"][0]["cells"], strict=True)
    )
