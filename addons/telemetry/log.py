"""The hub's log: lines for people, or JSON for collectors, on standard error, paced where they repeat themselves; and
its last lines, for people who look at the hub and not at its terminal."""

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

REPEAT = 60.0
"""Seconds after which a line that would be the same may be logged again."""
REMEMBERED = 1_000
"""Lines that a `Pace` remembers; with more of them, the oldest may come again early."""

OWN = ("addons", "kube")
"""The only loggers that may log below INFO. Libraries log secrets there: hpack each header, tokens among them."""
LIBRARIES = ("mitmproxy", "asyncio", "hpack", "aiohttp")
"""Loggers that log each connection or stream at INFO, and faults of clients and servers at WARNING."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, and the traceback of an exception."""

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
    """Configure the log of the process. Lines of LIBRARIES below ERROR are dropped, unless `level` is debug."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else LineFormatter(TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if level == "debug" else logging.ERROR)
    hold_libraries_back()


def hold_libraries_back() -> None:
    """Keep libraries from logging below INFO: loaded ones, and others without a level of their own.

    mitmproxy's own programs have every library log all, and pyasn1 does so itself.
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
    """Flush printed text at the end of each line, whatever standard output is.

    mitmproxy prints its event log. Without a terminal Python buffers up to 8 KB of it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


class Pace:
    """Limits repeated log lines: one when a condition begins, then one a minute while it lasts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[Hashable, float] = {}

    def allows(self, what: Hashable) -> bool:
        """Whether a line about the condition `what` is due, one a minute. A caller that gets True logs it."""
        now = self._clock()
        if now - self._last.get(what, -REPEAT) < REPEAT:
            return False
        self._last.pop(what, None)
        self._last[what] = now
        while len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]
        return True

    def forget(self, what: Hashable) -> None:
        """Note that the condition `what` has ended: if it begins again, its first line is logged at once."""
        self._last.pop(what, None)


MAX_LINES = 200
"""Stored lines."""
REPORT_LINE = "report_line"
"""The attribute of a record that is one line of a report that a person asked for in an interface: its number."""
MAX_REPORT_LINES = 40
"""Lines of a report in the tail of the log: more would displace the hub's own lines."""
MAX_LINE = 1_000
"""Stored characters of a line; of a traceback only the first line."""

_CREDENTIAL = re.compile(r"(?i)\b(bearer|basic)\s+\S+|\beyJ[\w-]+\.[\w-]+\.[\w-]*")
"""The log is written without credentials. Text that looks like one all the same is left out of reports."""


def without_credentials(text: str) -> str:
    """A text without anything that looks like a credential, and no longer than a line."""
    return _CREDENTIAL.sub("(hidden)", text)[:MAX_LINE]


class LogTail(logging.Handler):
    """A handler of the root logger."""

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
        """Keep logged lines from now on."""
        logging.getLogger().addHandler(self)

    def detach(self) -> None:
        logging.getLogger().removeHandler(self)
