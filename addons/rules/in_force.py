"""Follows the rules ConfigMap: parses each edit, reports bad entries, and notifies the hub of the new rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from addons.filters.filter import Filter
from addons.rules.table import Problem, Rules, parse_rules
from addons.telemetry import metrics
from kube.concurrency.notifier import completes_within
from kube.errors import unavailable
from kube.store.store import Change, Store

COPY_WAIT = 3.0
"""Seconds for disk and cloud to provide the rules, before a hub that may start without them does so."""

logger = logging.getLogger(__name__)


class RulesInForce:
    """The rules in force, which follow the ConfigMap.

    Until it is known whether the ConfigMap exists, no request that a rule could filter is answered.
    """

    def __init__(
        self,
        filters: tuple[Filter, ...],
        disabled: frozenset[str],
        report: Callable[[Problem, str], None],
    ) -> None:
        """Begin with the built-in bindings. `report` receives each new problem of an edit.

        It also receives the ConfigMap's uid.
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
        """Whether the rules are the ConfigMap's, or there is none, rather than those of a hub that started without a
        cloud."""
        self._known = asyncio.Event()

    def follow(self, store: Store, why_unknown: Callable[[], str]) -> None:
        """Follow a store that holds the ConfigMap, or nothing; `why_unknown` returns the reason for an empty store, for
        messages."""
        self._store, self._why_unknown = store, why_unknown
        store.listen(self)

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` once the rules are known, and after each edit that changes their meaning."""
        self._listeners.append(changed)

    def use(self, filters: tuple[Filter, ...]) -> None:
        """Replace the filters, with the same ConfigMap. For listeners this is an edit."""
        self._filters = filters
        if self.is_known:
            self._parse()
        else:
            self.rules = parse_rules(None, self._disabled, filters)

    def current(self) -> Rules:
        return self.rules

    async def wait_known(self, wait: float) -> None:
        """Wait until the rules are known; StatusError 503 if they are not within `wait` seconds."""
        if not self.is_known and not await completes_within(wait, self._known.wait()):
            raise unavailable(f"the filter rules are not known yet: {self.why_unknown}", retry_after=1)

    async def known(self) -> None:
        """Wait until the rules are known."""
        await self._known.wait()

    async def begin_without_cloud(self, is_away: Callable[[], bool]) -> None:
        """Use the built-in bindings if the cloud is away and the disk has no copy of the ConfigMap.

        Return when the rules are known.
        """
        while not self._known.is_set():
            await completes_within(COPY_WAIT, self._known.wait())
            if not self._known.is_set() and is_away():
                logger.warning(
                    "no cloud, and no copy of the rules: using the built-in ones until the cloud answers"
                )
                self._parse()

    @property
    def why_unknown(self) -> str:
        """The reason why the rules are unknown, for messages."""
        return self._why_unknown()

    def data(self) -> Mapping[str, str] | None:
        """The data of the ConfigMap as the cloud has it; None if it does not exist."""
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
