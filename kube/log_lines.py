"""Escapes foreign text for logs and terminals, so that it can neither move the cursor nor forge a log line."""

from __future__ import annotations

import logging

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """A text as one line, with UNPRINTABLE for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else UNPRINTABLE for character in text)


def printable_lines(text: str) -> str:
    """A text of several lines: line ends stay, other control characters are escaped."""
    return "\n".join(map(printable, text.split("\n")))


class LineFormatter(logging.Formatter):
    """Formats each log message as one line, because it may contain foreign text; a traceback has several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        return printable_lines(super().formatException(ei))  # type: ignore[arg-type]  # as logging calls it
