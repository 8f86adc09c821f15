"""Cells that several kinds share: ages, selectors, and shortened lists.

The texts are those of kube-apiserver's printers (pkg/printers/internalversion/printers.go in Kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from kube.json_type import Json

NONE = "<none>"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SHOWN = 3
"""The most addresses or ports in a cell; further ones are only counted."""


def human_duration(seconds: float) -> str:
    """A duration as kubectl shows it (apimachinery's duration.HumanDuration)."""
    full_seconds = int(seconds)
    if full_seconds < -1:
        return "<invalid>"
    if full_seconds < 120:
        return f"{max(full_seconds, 0)}s"
    minutes, hours, days = full_seconds // 60, full_seconds // 3600, full_seconds // 86400
    if minutes < 10:
        return _two(minutes, "m", full_seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def duration(seconds: float) -> str:
    """A duration to the second: `4s`, `3m20s`, `2h5m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def size(count: float) -> str:
    """A size in bytes for display: `812 B`, `1.5 MiB`."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {UNITS[unit]}"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def aligned(rows: Sequence[Sequence[str]], gap: str = "  ", numbers: Collection[int] = ()) -> list[str]:
    """Format rows as lines with aligned columns; those in `numbers` are right-aligned.

    ValueError if the rows have different numbers of cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def parse_time(text: object) -> datetime | None:
    """Parse a time of the API; None if it is malformed."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


def since(text: object) -> str:
    """The age of a time, as kubectl shows it."""
    then = parse_time(text)
    return "<unknown>" if then is None else human_duration((datetime.now(UTC) - then).total_seconds())


def age(obj: Json) -> str:
    return since(obj["metadata"].get("creationTimestamp"))


def labels(values: Json | None) -> str:
    """Format labels as labels.FormatLabels does."""
    return ",".join(f"{name}={value}" for name, value in sorted((values or {}).items())) or NONE


def selector(spec: Json | None) -> str:
    """Format a metav1.LabelSelector as labels.Selector does; "" if it selects everything."""
    spec = spec or {}
    parts = [(name, f"{name}={value}") for name, value in (spec.get("matchLabels") or {}).items()]
    for match_expression in spec.get("matchExpressions") or ():
        key, values = match_expression.get("key", ""), ",".join(sorted(match_expression.get("values") or ()))
        match match_expression.get("operator"):
            case "Exists":
                parts.append((key, key))
            case "DoesNotExist":
                parts.append((key, f"!{key}"))
            case operator:
                parts.append((key, f"{key} {str(operator).lower()} ({values})"))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def containers(template: Json) -> list[str]:
    """The cells with the names and images of a pod template's containers."""
    listed: Sequence[Json] = (template.get("spec") or {}).get("containers") or ()
    return [",".join(container.get(name, "") for container in listed) for name in ("name", "image")]


def shortened(texts: Iterable[str], empty: str = "<unset>") -> str:
    """Join the first SHOWN texts, and count the others."""
    items = list(texts)
    shown = ",".join(items[:SHOWN])
    if len(items) > SHOWN:
        return f"{shown} + {len(items) - SHOWN} more..."
    return shown or empty


def is_true(conditions: Iterable[Json] | None, kind: str) -> bool:
    """True if the first condition of this type is True."""
    status = next(
        (condition.get("status") for condition in conditions or () if condition.get("type") == kind), ""
    )
    return status == "True"
