"""Compares resource quantities, which the API server writes its own way: it stores `0.5` as `500m`. Pure.

Source: k8s.io/apimachinery, pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(
    r"([+-]?[0-9]{0,30}(?:\.[0-9]{0,30})?)(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)
_FACTORS = {
    "": Decimal(1),
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("num", -3)},
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_PARENTS = frozenset({"limits", "requests"})
_NAMES = frozenset({"sizeLimit", "divisor"})


def same_quantity(left: Any, right: Any, path: Sequence[str]) -> bool:
    """Whether two values of a pod spec's field are one quantity. False for a field that holds no quantity."""
    if not (_NAMES.intersection(path[-1:]) or _PARENTS.intersection(path[-2:-1])):
        return False
    parsed = parse_quantity(left)
    return parsed is not None and parsed == parse_quantity(right)


def parse_quantity(value: Any) -> Decimal | None:
    """A quantity as a number, None for what is none."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or not any(map(str.isdigit, match[1])):
        return None
    return Decimal(f"{match[1]}{match[2] or ''}") * _FACTORS[match[3] or ""]
