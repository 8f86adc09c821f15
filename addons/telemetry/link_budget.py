"""The operator's budget for traffic to the cloud, in bytes per day or month, and the bytes spent. Limits nothing."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

import orjson

UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
_FORM = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})/(day|month)")


class LinkBudget(NamedTuple):
    """Bytes in both directions together for each period, `day` or `month`."""

    bytes: int
    period: str
    unit: str = "MB"

    def summary(self, spent: int) -> str:
        """Return a text such as `15.2 of 20 MB a day`."""
        unit = UNITS[self.unit]
        return f"{spent / unit:.1f} of {self.bytes / unit:g} {self.unit} a {self.period}"

    def current(self, today: datetime.date) -> str:
        """Return the name of the current period."""
        return today.isoformat()[: 10 if self.period == "day" else 7]


def parse_link_budget(name: str, text: str) -> LinkBudget | None:
    """Parse a budget such as `20MB/day`. None for ""; ValueError for any other form."""
    if not text:
        return None
    parts = _FORM.fullmatch(text.strip())
    budget = int(float(parts[1]) * UNITS[parts[2]]) if parts is not None else 0
    if parts is None or not budget:
        raise ValueError(f"{name} {text!r} is not of the form 20MB/day: kB, MB or GB, a day or a month")
    return LinkBudget(budget, parts[3], parts[2])


class Spending:
    """The bytes spent in the current period."""

    def __init__(self, budget: LinkBudget) -> None:
        self.spent = 0
        self.period = ""
        self._budget = budget
        self._total = 0
        self._has_warned = False

    def load_counts(self, data: bytes) -> None:
        """Continue with the counts of an earlier process; unreadable data is ignored."""
        try:
            state = orjson.loads(data)
            period, spent, has_warned = str(state["period"]), int(state["bytes"]), bool(state["told"])
        except (ValueError, KeyError, TypeError):
            return
        self.period, self.spent, self._has_warned = period, spent, has_warned

    def dump(self) -> bytes:
        return orjson.dumps({"period": self.period, "bytes": self.spent, "told": self._has_warned})

    def count(self, total: int, today: datetime.date) -> bool:
        """Update the spent bytes by `total`, the link's bytes since the process started. Return True once per period,
        when they exceed the budget.
        """
        period = self._budget.current(today)
        if period != self.period:
            self.period, self.spent, self._has_warned = period, 0, False
        self.spent += total - self._total
        self._total = total
        is_news = self.spent > self._budget.bytes and not self._has_warned
        self._has_warned |= is_news
        return is_news
