"""The last lines of the log, for people who look at the hub and not at its terminal."""

from __future__ import annotations

import logging
import re
from collections import deque

from kube.log_lines import LineFormatter

MAX_LINES = 200
"""Lines that are kept."""
MAX_LINE = 1_000
"""Characters of a line that are kept; the first line alone of a traceback."""

_CREDENTIAL = re.compile(r"(?i)\b(bearer|basic)\s+\S+|\beyJ[\w-]+\.[\w-]+\.[\w-]*")
"""The log is written without credentials. What looks like one all the same goes into no report."""


def without_credentials(text: str) -> str:
    """A text without what looks like one, and no longer than a line."""
    return _CREDENTIAL.sub("(hidden)", text)[:MAX_LINE]


class LogTail(logging.Handler):
    """A handler of the root logger."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self.lines: deque[str] = deque(maxlen=MAX_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).partition("\n")[0]
        self.lines.append(without_credentials(line))

    def attach(self) -> None:
        """Keep what is logged from now on."""
        logging.getLogger().addHandler(self)

    def detach(self) -> None:
        logging.getLogger().removeHandler(self)
