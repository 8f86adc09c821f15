"""Makes HTML of values: a text that a client, a server or a user wrote never becomes markup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from addons.ui.reports.text import Column, Row

NOTHING = "-"
"""Stands for a missing value."""


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

    `mark` gives a row's class, "" for none.
    """
    if not rows:
        return '<p class="none">none</p>'
    heads = "".join(f'<th scope="col">{text(name)}</th>' for name, _ in columns)
    body = "".join(
        f'<tr class="{text(mark(row)) if mark(row) else ""}">'
        + "".join(f'<td data-label="{text(name)}">{text(of(row))}</td>' for name, of in columns)
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def options(values: Iterable[str], chosen: str, empty: str) -> str:
    """The options of a list to choose from; `empty` names the choice of none."""
    known = list(dict.fromkeys(value for value in (*values, chosen) if value))
    made = (f"<option{' selected' if value == chosen else ''}>{text(value)}</option>" for value in known)
    return f'<option value="">{text(empty)}</option>' + "".join(made)


def lines(values: Iterable[str]) -> str:
    """Preformatted text."""
    return f'<pre tabindex="0">{escape(chr(10).join(values))}</pre>'
