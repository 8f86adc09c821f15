"""The format of the log, and the last lines that the hub retains."""

from __future__ import annotations

import importlib
import io
import json
import logging
import sys
from typing import get_args

import pytest

from addons.telemetry.log import (
    MAX_LINE,
    MAX_LINES,
    MAX_REPORT_LINES,
    OWN,
    REMEMBERED,
    REPEAT_INTERVAL,
    REPORT_LINE,
    Format,
    Level,
    LogTail,
    Pace,
    log_to_stderr,
    print_line_by_line,
)


def test_the_text_format_has_level_logger_and_message(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("info", "text")
    logging.getLogger("addons.egress").info("%s is up", "cloud")
    logging.getLogger("addons.egress").debug("not told")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" INFO addons.egress: cloud is up")


def test_each_printed_line_is_flushed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file))
    print("kept back")
    assert file.getvalue() == b""
    print_line_by_line()
    print("told")
    assert file.getvalue() == b"kept back\ntold\n"


def test_the_json_format_is_one_object_per_line(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("info", "json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("addons.x").exception("it failed: %s", "ü")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("error", "addons.x", "it failed: ü")
    assert found["time"].endswith("Z")
    assert "ValueError: two\nlines" in found["exception"]


@pytest.mark.parametrize("log_format", get_args(Format))
def test_control_characters_in_messages_are_escaped_in_the_log(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str], log_format: Format
) -> None:
    """A server's message may contain a user's text."""
    log_to_stderr("info", log_format)
    tail = LogTail()
    tail.attach()
    logging.getLogger("addons.x").info("%s", "no\n2026-01-01 ERROR forged\x1b[2J\x9b1m")
    tail.detach()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    (retained,) = tail.lines
    assert retained.isprintable()
    assert "forged" in retained


@pytest.mark.parametrize(("level", "heard"), [("info", ["error"]), ("debug", ["warning", "error"])])
def test_libraries_log_each_client_only_on_request(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str], level: str, heard: list[str]
) -> None:
    log_to_stderr(level, "json")
    logging.getLogger("mitmproxy.proxy.server").warning("Client TLS handshake failed.")
    logging.getLogger("mitmproxy.proxy.server").error("mitmproxy has crashed!")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == heard


@pytest.mark.parametrize("level", get_args(Level))
def test_libraries_never_log_below_info(root_logger: logging.Logger, level: str) -> None:
    """At DEBUG, hpack logs each received header, including tokens and the process's own secrets."""
    for each in ("hpack.hpack", "mitmproxy.proxy.server", "aiohttp"):
        importlib.import_module(each)
    loaded = [
        each for each in root_logger.manager.loggerDict if each.partition(".")[0] not in (*OWN, "tests")
    ]
    assert {"hpack.hpack", "mitmproxy.proxy.server", "aiohttp.client"} <= {*loaded}
    log_to_stderr(level, "text")
    for each in (*loaded, "loaded.later"):
        assert not logging.getLogger(each).isEnabledFor(logging.DEBUG), each
    assert logging.getLogger("addons.egress").isEnabledFor(logging.DEBUG) is (level == "debug")


def test_a_repeated_line_is_logged_once_a_minute() -> None:
    now = 1000.0
    pace = Pace(lambda: now)
    assert [pace.allows("down"), pace.allows("down"), pace.allows("other")] == [True, False, True]
    now += REPEAT_INTERVAL - 1
    assert not pace.allows("down")
    now += 1
    assert [pace.allows("down"), pace.allows("down")] == [True, False]
    pace.forget("down")
    assert pace.allows("down")


def test_a_log_limiter_is_bounded() -> None:
    pace = Pace(lambda: 0.0)
    for each in range(2 * REMEMBERED):
        assert pace.allows(each)
    assert len(pace._last) == REMEMBERED


logger = logging.getLogger("addons.test_log_tail")


@pytest.fixture
def tail() -> LogTail:
    return LogTail()


def log_line(tail: LogTail, text: str) -> None:
    tail.handle(logger.makeRecord(logger.name, logging.WARNING, __file__, 1, text, (), None))


def test_the_retained_lines_are_bounded(tail: LogTail) -> None:
    for number in range(MAX_LINES + 10):
        log_line(tail, f"line {number} {'x' * 2 * MAX_LINE}")
    assert len(tail.lines) == MAX_LINES
    assert "line 10 " in tail.lines[0]
    assert {len(line) for line in tail.lines} == {MAX_LINE}


@pytest.mark.parametrize("secret", ["Bearer abc.def", "basic YTpi", "eyJhbGciOi.eyJzdWIi.c2ln"])
def test_credentials_are_hidden_in_the_log(tail: LogTail, secret: str) -> None:
    log_line(tail, f"sent {secret} on")
    assert tail.lines[0].endswith("sent (hidden) on")


def test_a_traceback_is_one_line_in_the_tail(tail: LogTail) -> None:
    try:
        raise ValueError("inner")
    except ValueError as error:
        given = (type(error), error, error.__traceback__)
        tail.handle(logger.makeRecord(logger.name, logging.ERROR, __file__, 1, "it failed", (), given))
    assert tail.lines[0].endswith("it failed")


def test_a_long_report_is_shortened_in_the_tail(tail: LogTail) -> None:
    """The rest would displace the hub's own lines."""
    log_line(tail, "the hub itself")
    for number in range(MAX_LINES):
        record = logger.makeRecord(logger.name, logging.INFO, __file__, 1, str(number), (), None)
        setattr(record, REPORT_LINE, number)
        tail.handle(record)
    assert len(tail.lines) == 1 + MAX_REPORT_LINES
    assert tail.lines[0].endswith("the hub itself")


def test_the_tail_receives_log_lines_while_attached(tail: LogTail) -> None:
    tail.attach()
    logger.warning("heard")
    tail.detach()
    logger.warning("not heard")
    assert [line.rpartition(": ")[2] for line in tail.lines] == ["heard"]
