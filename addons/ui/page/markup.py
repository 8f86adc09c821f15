"""Renders values as HTML. Text from a client, a server or a user is always escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence

from addons.ui.reports.text import Column, Row

NO_VALUE = "-"
"""Shown for a missing value."""
_NUMBER = re.compile(r"[\d.]+ ?([KMGT]?i?B|%)?|(\d+[hms])+")


def text(value: object) -> str:
    """Return a value as escaped text, for a document or a quoted attribute."""
    match value:
        case None | "" | [] | ():
            return NO_VALUE
        case list() | tuple():
            return html.escape(", ".join(map(str, value)))
        case _:
            return html.escape(str(value))


def table(rows: Sequence[Row], columns: Sequence[Column], mark: Callable[[Row], str] = lambda _: "") -> str:
    """Render a table whose cells carry their column's name, so that a narrow screen can show rows as cards.

    `mark` returns a row's class, or "". Columns without values are omitted; numbers are right-aligned.
    """
    if not rows:
        return '<p class="none">none</p>'
    shown = [
        (name, cells) for name, of in columns if any(map(_has_value, cells := [of(row) for row in rows]))
    ]
    sides = [' class="number"' if all(map(_is_number, cells)) else "" for _, cells in shown]
    heads = "".join(
        f'<th scope="col"{side}>{text(name)}</th>' for (name, _), side in zip(shown, sides, strict=True)
    )
    body = "".join(
        f'<tr class="{text(mark(row)) if mark(row) else ""}">'
        + "".join(
            f'<td data-label="{text(name)}"{side}>{text(cells[at])}</td>'
            for (name, cells), side in zip(shown, sides, strict=True)
        )
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _has_value(value: object) -> bool:
    return value not in (None, "", NO_VALUE) and value != [] and value != ()


def _is_number(value: object) -> bool:
    """Whether a cell is a number, a size, a duration or empty."""
    return (
        not _has_value(value) or isinstance(value, int | float) or _NUMBER.fullmatch(str(value)) is not None
    )


def options(values: Iterable[str], chosen: str, empty: str) -> str:
    """Render the options of a select element; `empty` is the label of no choice."""
    known = list(dict.fromkeys(value for value in (*values, chosen) if value))
    made = (f"<option{' selected' if value == chosen else ''}>{text(value)}</option>" for value in known)
    return f'<option value="">{text(empty)}</option>' + "".join(made)


def lines(values: Iterable[str]) -> str:
    """Render preformatted text."""
    return f'<pre tabindex="0">{html.escape(chr(10).join(values))}</pre>'
