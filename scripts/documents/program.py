"""`scripts/docs`: writes generated parts into the pages; with `--check`, exits with status 1 if a page differs.

A table is between `<!-- scripts/docs: NAME -->` and `<!-- end -->`. In `docs/bounds.md` the number of a bound precedes
its unit and its constant: ``4 MiB (`module.NAME`)``.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.documents.tables import DOCS, TABLES

REGION = re.compile(r"(<!-- scripts/docs: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
BOUNDS = DOCS / "bounds.md"
CHART = DOCS.parent / "deploy" / "chart" / "README.md"
BOUND = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?)(?P<unit> ?[A-Za-z]*)"
    r"(?P<rest>[^()`\d\n]*\(`(?P<module>[\w.]+)\.(?P<name>[A-Z][A-Z_0-9]*)`\))"
)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "ms": 0.001, "minutes": 60, "hours": 3600, "days": 86_400}
"""Units of bytes and time; any other word after a number names the counted things."""


def fresh(page: Path, text: str) -> str:
    """Return a page with its generated parts. KeyError, ImportError or AttributeError if it names something missing."""
    text = REGION.sub(
        lambda match: match[1] + "\n".join(TABLES[match["name"]]()).rstrip() + "\n" + match[3], text
    )
    if page != BOUNDS:
        return text
    return BOUND.sub(lambda match: _number(match) + match["unit"] + match["rest"], text)


def _number(match: re.Match[str]) -> str:
    value = getattr(importlib.import_module(match["module"]), match["name"])
    unit = match["unit"].strip()
    # A name may say the unit of its number.
    number = value if unit.upper() in match["name"].split("_") else value / UNITS.get(unit, 1)
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def bounds(text: str) -> Iterator[str]:
    """Return the constants whose numbers a page has."""
    return (f"{match['module']}.{match['name']}" for match in BOUND.finditer(text))


def stale() -> dict[Path, str]:
    """Return the pages that differ from the code, with the generated text."""
    texts = ((page, page.read_text()) for page in (*sorted(DOCS.glob("*.md")), CHART))
    return {page: wanted for page, text in texts if (wanted := fresh(page, text)) != text}


def main(arguments: Sequence[str]) -> int:
    pages = stale()
    for page, text in pages.items():
        if "--check" in arguments:
            print(f"{page} is not what the code says: scripts/docs", file=sys.stderr)
        else:
            page.write_text(text)
    return 1 if pages and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
