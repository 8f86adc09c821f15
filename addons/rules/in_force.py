"""Follows the rules ConfigMap: parses each edit, reports bad entries, and notifies the hub of the new rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from addons.filters.filter import Filter
from addons.rules.table import Problem, Rules, parse_rules
from addons.telemetry import metrics
from kube.concurrency.notifier import comes_within
from kube.errors import unavailable
from kube.store.store import Change, Store

COPY_WAIT = 3.0
"""Seconds in which disk and cloud may answer for the rules, before a hub that may begin without them does."""

logger = logging.getLogger(__name__)


class RulesInForce:
    """Follows the ConfigMap.

    Until it is known whether there is one, no request that a rule could filter is answered.
    """

    def __init__(
        self,
        filters: tuple[Filter, ...],
        disabled: frozenset[str],
        report: Callable[[Problem, str], None],
    ) -> None:
        """Begin with the built-in bindings. `report` gets each problem of an edit that the one before did not have.

        It also gets the ConfigMap's uid.
        """
        self._filters = filters
        self._disabled = disabled
        self._report = report
        self._listeners: list[Callable[[], None]] = []
        self._store = Store()
        self._why_unknown: Callable[[], str] = lambda: "the hub is starting"
        self.rules = parse_rules(None, disabled, filters)
        self.is_known = False
        self._is_read = False
        """The rules are the ConfigMap's, or there is none: they are not those of a hub that began without a cloud."""
        self._known = asyncio.Event()

    def follow(self, store: Store, why_unknown: Callable[[], str]) -> None:
        """Follow a store that holds the ConfigMap, or nothing; `why_unknown` has the reason for an empty store, for
        people."""
        self._store, self._why_unknown = store, why_unknown
        store.listen(self)

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` once the rules are known, and after each edit that changes their meaning."""
        self._listeners.append(changed)

    def use(self, filters: tuple[Filter, ...]) -> None:
        """Take other filters, with the same ConfigMap. To followers of the rules, that is an edit."""
        self._filters = filters
        if self.is_known:
            self._parse()
        else:
            self.rules = parse_rules(None, self._disabled, filters)

    def current(self) -> Rules:
        return self.rules

    async def wait_known(self, wait: float) -> None:
        """Return once the rules are known; StatusError 503 if they are not within `wait` seconds."""
        if not self.is_known and not await comes_within(wait, self._known.wait()):
            raise unavailable(f"the filter rules are not known yet: {self.why_unknown}", retry_after=1)

    async def known(self) -> None:
        """Return as soon as the rules are known."""
        await self._known.wait()

    async def begin_without_cloud(self, is_away: Callable[[], bool]) -> None:
        """Take the built-in bindings for known while the cloud is away and the disk has no copy of the ConfigMap.

        Returns when the rules are known.
        """
        while not self._known.is_set():
            await comes_within(COPY_WAIT, self._known.wait())
            if not self._known.is_set() and is_away():
                logger.warning(
                    "no cloud, and no copy of the rules: using the built-in ones until the cloud answers"
                )
                self._parse()

    @property
    def why_unknown(self) -> str:
        """The reason why the rules are not known, for people."""
        return self._why_unknown()

    def data(self) -> Mapping[str, str] | None:
        """The data of the ConfigMap as the cloud has it; None without one."""
        item = next(iter(self._store), None)
        return item.decode().fields.mapping("data") if item is not None else None

    def changed(self, _change: Change) -> None:
        self._parse()

    def advanced(self) -> None:
        if not self._is_read:
            self._parse()

    def restarted(self) -> None:
        self._parse()

    def _parse(self) -> None:
        self._is_read = self._store.complete
        item = next(iter(self._store), None)
        obj = item.decode() if item is not None else None
        data = obj.fields.mapping("data") if obj is not None else None
        rules = parse_rules(data, self._disabled, self._filters)
        known = frozenset(self.rules.problems.named)
        for problem in rules.problems.named:
            if problem not in known:
                logger.warning("rules: key %r: %r is skipped: %s", problem.key, problem.text, problem.why)
                metrics.RULE_ERRORS.inc()
                self._report(problem, obj.uid if obj is not None else "")
        if rules.problems.unnamed and rules.problems.unnamed != self.rules.problems.unnamed:
            logger.warning("rules: %d more entries are skipped", rules.problems.unnamed)
        was, self.rules = self.rules, rules
        if self.is_known and rules.digest == was.digest:
            return
        logger.info("rules %s are in force", rules.digest[:12])
        self.is_known = True
        self._known.set()
        for changed in self._listeners:
            changed()
