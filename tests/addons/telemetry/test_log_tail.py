"""The last lines of the log."""

from __future__ import annotations

import logging

import pytest

from addons.telemetry.log_tail import MAX_LINE, MAX_LINES, LogTail

logger = logging.getLogger("addons.test_log_tail")


@pytest.fixture
def tail() -> LogTail:
    return LogTail()


def say(tail: LogTail, text: str) -> None:
    tail.handle(logger.makeRecord(logger.name, logging.WARNING, __file__, 1, text, (), None))


def test_lines_are_bounded(tail: LogTail) -> None:
    for number in range(MAX_LINES + 10):
        say(tail, f"line {number} {'x' * 2 * MAX_LINE}")
    assert len(tail.lines) == MAX_LINES
    assert "line 10 " in tail.lines[0]
    assert {len(line) for line in tail.lines} == {MAX_LINE}


@pytest.mark.parametrize("secret", ["Bearer abc.def", "basic YTpi", "eyJhbGciOi.eyJzdWIi.c2ln"])
def test_what_looks_like_a_credential_is_hidden(tail: LogTail, secret: str) -> None:
    say(tail, f"sent {secret} on")
    assert tail.lines[0].endswith("sent (hidden) on")


def test_of_a_traceback_the_first_line(tail: LogTail) -> None:
    try:
        raise ValueError("inner")
    except ValueError as error:
        given = (type(error), error, error.__traceback__)
        tail.handle(logger.makeRecord(logger.name, logging.ERROR, __file__, 1, "it failed", (), given))
    assert tail.lines[0].endswith("it failed")


def test_it_hears_the_log_while_it_is_attached(tail: LogTail) -> None:
    tail.attach()
    logger.warning("heard")
    tail.detach()
    logger.warning("not heard")
    assert [line.rpartition(": ")[2] for line in tail.lines] == ["heard"]
