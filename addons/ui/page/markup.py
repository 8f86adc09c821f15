"""Makes HTML of values: a text that a client, a server or a user wrote never becomes markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

from addons.ui.reports.text import Column, Row

NOTHING = "-"
"""Stands for a missing value."""
_NUMBER = re.compile(r"[\d.]+ ?([KMGT]?i?B|%)?|(\d+[hms])+")


def text(value: object) -> str:
    """A value as text of a document, or of an attribute in quotation marks."""
    match value:
        case None | "" | [] | ():
            return NOTHING
        case list() | tuple():
            return escape(", ".join(map(str, value)))
        case _:
            return escape(str(value))


def table(rows: Sequence[Row], columns: Sequence[Column], mark: Callable[[Row], str] = lambda _: "") -> str:
    """A table whose cells name their columns, so that a narrow screen shows a row as a card.

    `mark` gives a row's class, "" for none. A column without a value is left out; numbers stand at the right.
    """
    if not rows:
        return '<p class="none">none</p>'
    shown = [(name, cells) for name, of in columns if any(map(_is_said, cells := [of(row) for row in rows]))]
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


def _is_said(value: object) -> bool:
    return value not in (None, "", NOTHING) and value != [] and value != ()


def _is_number(value: object) -> bool:
    """Whether a cell has a number, a size, a duration or nothing."""
    return not _is_said(value) or isinstance(value, int | float) or _NUMBER.fullmatch(str(value)) is not None


def options(values: Iterable[str], chosen: str, empty: str) -> str:
    """The options of a list to choose from; `empty` names the choice of none."""
    known = list(dict.fromkeys(value for value in (*values, chosen) if value))
    made = (f"<option{' selected' if value == chosen else ''}>{text(value)}</option>" for value in known)
    return f'<option value="">{text(empty)}</option>' + "".join(made)


def lines(values: Iterable[str]) -> str:
    """Preformatted text."""
    return f'<pre tabindex="0">{escape(chr(10).join(values))}</pre>'
