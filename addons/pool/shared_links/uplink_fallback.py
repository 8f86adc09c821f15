"""Borrows another hub's link while no uplink of this node reaches the cloud, until an own uplink has been stable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from addons.link.failback import FailbackTimer, run_selector
from addons.link.health import Cloud, Condition, ServerHealth
from addons.link.servers import Lender
from addons.link.timeouts import TimeoutEstimator
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier

CONCURRENT_LENDERS = 3
"""Lenders that are tried concurrently; the first tunnel that reaches the cloud is used."""
TRY = 10.0
"""Seconds within which a lender's tunnel must reach the cloud."""
RETRY, LAST_RETRY = 1.0, 10.0
"""Seconds between two attempts with all lenders, initially and at most."""
logger = logging.getLogger(__name__)


def lenders_to_ask(known: Iterable[Lender], failed: Mapping[Lender, float]) -> list[Lender]:
    """Sort the known lenders: first those without a failure, then those whose failure is longest ago."""
    return sorted(known, key=lambda lender: failed.get(lender, float("-inf")))[:CONCURRENT_LENDERS]


class UplinkFallback:
    """Opens and closes the borrowed tunnel according to the results of probes."""

    def __init__(
        self,
        cloud: Cloud,
        borrow: Callable[[tuple[ServerHealth, ...]], None],
        lenders: Callable[[], Sequence[Lender]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`borrow` tries tunnels and uses those that answer (`addons.link.link.UpstreamManager.borrow`). `lenders`
        returns hubs that offer tunnels, by preference. `clock` is monotonic."""
        self._cloud = cloud
        self._borrow = borrow
        self._lenders = lenders
        self._clock = clock
        self._own = FailbackTimer()
        self._lender: Lender | None = None
        """The hub whose tunnel is in use."""
        self._is_lost = False
        """Whether all own uplinks have failed and none has been used since."""
        self._failed: dict[Lender, float] = {}
        """For each lender, when its tunnel last failed to reach the cloud."""
        self._backoff = Backoff(RETRY, LAST_RETRY, clock)
        self._asked = self._ask_again = float("-inf")

    async def run(self, probed: Notifier) -> None:
        """Act on each probe's result until cancelled. `probed` notifies after each probe."""
        await run_selector(self.step, self._clock, self._cloud.changed, probed)

    def step(self, now: float) -> float | None:
        """Perform the steps that are due; return the seconds until the next one, or None if only a change of a server's
        state can require one."""
        paths, has_own_path = self._cloud.borrowed, self._cloud.has_own_path
        if not has_own_path and not self._is_lost:
            self._is_lost = True
            self._own.lost(now)
        left = self._own.seconds_left(now, is_up=has_own_path)
        used = next((path for path in paths if path.usable), None)
        if left is not None and (used is None or left == 0.0):
            self._use_own_path(now)
            return None
        if used is not None:
            self._use(used.server.lender, paths)
            return left
        if paths and not self._has_failed(paths, now):
            return max(0.0, self._asked + TRY - now)
        if paths:
            self._leave(paths, now)
        return self._ask(now)

    def _use_own_path(self, now: float) -> None:
        if self._cloud.borrowed:
            self._borrow(())
        if self._is_lost:
            self._is_lost, self._lender = False, None
            self._failed.clear()
            self._own.used(now)
            self._backoff.forget()
            self._ask_again = now

    def _use(self, lender: Lender | None, paths: tuple[ServerHealth, ...]) -> None:
        if lender != self._lender:
            self._lender = lender
            self._backoff.forget()
            self._borrow(tuple(path for path in paths if path.server.lender == lender))

    def _has_failed(self, paths: tuple[ServerHealth, ...], now: float) -> bool:
        return now - self._asked >= TRY or all(path.condition is Condition.DOWN for path in paths)

    def _leave(self, paths: tuple[ServerHealth, ...], now: float) -> None:
        """Drop lenders whose tunnels do not reach the cloud. If one of them worked before, try other lenders at
        once."""
        for path in paths:
            lender = path.server.lender
            assert lender is not None
            # A lender without a cloud is asked again and again: its first refusal is logged.
            if lender == self._lender or lender not in self._failed:
                logger.info("no tunnel through node %s: %s", lender.node, path.reason or "no answer")
            self._failed[lender] = now
        self._ask_again = now if self._lender is not None else now + self._backoff.next()
        self._lender = None
        self._borrow(())

    def _ask(self, now: float) -> float:
        if now < self._ask_again:
            return self._ask_again - now
        known = self._lenders()
        self._failed = {lender: at for lender, at in self._failed.items() if lender in known}
        paths = tuple(
            ServerHealth.untried(
                replace(own.server, lender=lender, uplink=None),
                TimeoutEstimator(own.timeouts.interval, own.timeouts.timeout),
            )
            for lender in lenders_to_ask(known, self._failed)
            for own in self._cloud.own_paths
            if own.server.scheme == "https"
        )
        if not paths:
            return RETRY
        self._asked = now
        self._borrow(paths)
        return TRY
