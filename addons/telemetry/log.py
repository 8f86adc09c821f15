"""The hub's log on standard error, as text or JSON, with rate-limited repetitions, and its last lines for reports."""

from __future__ import annotations

import datetime
import io
import json
import logging
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Literal

from kube.log_lines import LineFormatter, printable, printable_lines

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

REPEAT_INTERVAL = 60.0
"""Seconds before the same line may be logged again."""
REMEMBERED = 1_000
"""Maximum conditions that a `Pace` remembers. The oldest is forgotten, and may be logged again early."""

OWN = ("addons", "kube")
"""The only loggers that may log below INFO. Libraries log secrets at that level: hpack logs each header with its
token.
"""
LIBRARIES = ("mitmproxy", "asyncio", "hpack", "aiohttp")
"""Loggers that log each connection or stream at INFO, and errors of clients and servers at WARNING."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time (RFC 3339, UTC), level, logger, message, and an exception's
    traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = printable_lines(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(level: str, log_format: str) -> None:
    """Configure logging. Lines of LIBRARIES below ERROR are dropped, unless `level` is debug."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else LineFormatter(TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if level == "debug" else logging.ERROR)
    quieten_libraries()


def quieten_libraries() -> None:
    """Prevent libraries from logging below INFO, both loaded ones and later ones without their own level.

    mitmproxy's programs set the root logger to the lowest level, and pyasn1 sets its own.
    """
    root = logging.getLogger()
    if root.level < logging.INFO:
        for name in OWN:
            logging.getLogger(name).setLevel(root.level)
        root.setLevel(logging.INFO)
    for name, logger in root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] not in OWN:
            logger.setLevel(logger.level and max(logger.level, logging.INFO))


def print_line_by_line() -> None:
    """Flush standard output after each line.

    mitmproxy prints its event log, and Python would buffer up to 8 KB of it without a terminal.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


class Pace:
    """Rate-limits repeated log lines: one when a condition begins, then one a minute while it lasts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[Hashable, float] = {}

    def allows(self, what: Hashable) -> bool:
        """Whether a line about condition `what` is due. If True, the caller must log it."""
        now = self._clock()
        if now - self._last.get(what, -REPEAT_INTERVAL) < REPEAT_INTERVAL:
            return False
        self._last.pop(what, None)
        self._last[what] = now
        while len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]
        return True

    def forget(self, what: Hashable) -> None:
        """Record that condition `what` has ended: when it begins again, its first line is logged at once."""
        self._last.pop(what, None)


MAX_LINES = 200
"""Maximum stored lines."""
REPORT_LINE = "report_line"
"""Attribute of a log record that is one line of a report requested in an interface: the line's number."""
MAX_REPORT_LINES = 40
"""Maximum stored lines of a report: more would displace the hub's own lines."""
MAX_LINE = 1_000
"""Maximum stored characters of a line. Of a traceback only the first line is stored."""

_CREDENTIAL = re.compile(r"(?i)\b(bearer|basic)\s+\S+|\beyJ[\w-]+\.[\w-]+\.[\w-]*")
"""Pattern of credentials. The hub logs none; anything that looks like one is removed from reports anyway."""


def without_credentials(text: str) -> str:
    """Return a text without anything that looks like a credential, truncated to MAX_LINE."""
    return _CREDENTIAL.sub("(hidden)", text)[:MAX_LINE]


class LogTail(logging.Handler):
    """A handler of the root logger that stores the last lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(LineFormatter(TEXT))
        self.lines: deque[str] = deque(maxlen=MAX_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, REPORT_LINE, 0) >= MAX_REPORT_LINES:
            return
        line = self.format(record).partition("\n")[0]
        self.lines.append(without_credentials(line))

    def attach(self) -> None:
        """Begin to store logged lines."""
        logging.getLogger().addHandler(self)

    def detach(self) -> None:
        logging.getLogger().removeHandler(self)
