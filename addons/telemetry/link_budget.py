"""The operator's budget of the link to the cloud, in bytes a day or a month, and the spent part of it. Cuts nothing."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

import orjson

UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
_FORM = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})/(day|month)")


class LinkBudget(NamedTuple):
    """So many bytes, both directions together, in each period: `day` or `month`."""

    bytes: int
    period: str
    unit: str = "MB"

    def summary(self, spent: int) -> str:
        """`15.2 of 20 MB a day`."""
        unit = UNITS[self.unit]
        return f"{spent / unit:.1f} of {self.bytes / unit:g} {self.unit} a {self.period}"

    def current(self, today: datetime.date) -> str:
        """The name of the period that runs."""
        return today.isoformat()[: 10 if self.period == "day" else 7]


def parse_link_budget(name: str, text: str) -> LinkBudget | None:
    """The budget of `20MB/day`; ValueError for another form, None of ""."""
    if not text:
        return None
    parts = _FORM.fullmatch(text.strip())
    budget = int(float(parts[1]) * UNITS[parts[2]]) if parts is not None else 0
    if parts is None or not budget:
        raise ValueError(f"{name} {text!r} is not of the form 20MB/day: kB, MB or GB, a day or a month")
    return LinkBudget(budget, parts[3], parts[2])


class Spending:
    """The bytes of the link in the present period."""

    def __init__(self, budget: LinkBudget) -> None:
        self.spent = 0
        self.period = ""
        self._budget = budget
        self._total = 0
        self._has_warned = False

    def load_counts(self, data: bytes) -> None:
        """Continue from an earlier process's counts; unreadable ones count as nothing."""
        try:
            state = orjson.loads(data)
            period, spent, has_warned = str(state["period"]), int(state["bytes"]), bool(state["told"])
        except (ValueError, KeyError, TypeError):
            return
        self.period, self.spent, self._has_warned = period, spent, has_warned

    def dump(self) -> bytes:
        return orjson.dumps({"period": self.period, "bytes": self.spent, "told": self._has_warned})

    def count(self, total: int, today: datetime.date) -> bool:
        """Count the link's bytes since the start of the process; True once in a period, when they exceed the budget."""
        period = self._budget.current(today)
        if period != self.period:
            self.period, self.spent, self._has_warned = period, 0, False
        self.spent += total - self._total
        self._total = total
        is_news = self.spent > self._budget.bytes and not self._has_warned
        self._has_warned |= is_news
        return is_news
