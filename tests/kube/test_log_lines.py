"""Untrusted text in logs and terminals."""

from __future__ import annotations

import logging
import sys

from kube.log_lines import LineFormatter, printable, printable_lines


def test_printable_text_is_unmodified() -> None:
    for text in ("", "web-1", "Übung 東京 ☃", "a b"):
        assert printable(text) == text


def test_control_characters_are_replaced() -> None:
    assert (
        printable("a\x1b[2Jb\n\r\x7f\x9b\u2028\u202ec") == "a\ufffd[2Jb\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdc"
    )
    assert printable_lines("a\x1b\nb\r\n") == "a\ufffd\nb\ufffd\n"


def test_a_message_is_one_line_and_a_traceback_several() -> None:
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        record = logging.LogRecord("x", logging.INFO, "f", 1, "a\n%s", ("b\x1b",), sys.exc_info())
    first, *others = LineFormatter("%(name)s: %(message)s").format(record).split("\n")
    assert first == "x: a\ufffdb\ufffd"
    assert others[0].startswith("Traceback")
    assert others[-1] == "ValueError: \ufffd[2J"
