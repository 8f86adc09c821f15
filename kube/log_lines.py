"""Escaping of foreign text for logs and terminals: it moves no cursor, and begins no line of its own."""

from __future__ import annotations

import logging

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """A text as one line, with UNPRINTABLE for each character that is no letter, sign or blank."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else UNPRINTABLE for character in text)


def printable_lines(text: str) -> str:
    """A text of several lines, with their ends alone as they are."""
    return "\n".join(map(printable, text.split("\n")))


class LineFormatter(logging.Formatter):
    """A line for each message, of clients, servers and users too; a traceback has further ones."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        return printable_lines(super().formatException(ei))  # type: ignore[arg-type]  # as logging calls it
