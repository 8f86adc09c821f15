"""Logs the state of the link to the cloud: a line when it is lost, one a minute until it is back, and one then."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable

from addons.link.health import Cloud
from addons.telemetry import metrics
from addons.telemetry.log import REPEAT_INTERVAL
from kube.concurrency.notifier import completes_within
from kube.tables.cells import duration

logger = logging.getLogger(__name__)

REPLAY_WAIT = 60.0
"""Maximum seconds by which the line about the link's return is delayed, to include the number of replayed writes."""
OWN, NO_PATH = "own", "none"
"""Names of the links to the cloud, besides those of other nodes."""
STEP = 0.2
"""Seconds between checks of the journal during its replay."""


class LinkState:
    """Whether the link to the cloud is up, and since when."""

    def __init__(self) -> None:
        self.since = datetime.datetime.now().astimezone()

    def changed(self) -> None:
        self.since = datetime.datetime.now().astimezone()

    def seconds(self) -> int:
        """Return the seconds since the last change of the link's state."""
        return max(0, round((datetime.datetime.now().astimezone() - self.since).total_seconds()))


class LinkLog:
    """Logs until the hub stops."""

    def __init__(
        self,
        cloud: Cloud,
        state: LinkState,
        waiting: Callable[[], int],
        answers_from: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`state` is updated when the link is lost or back. `waiting` returns the number of journal entries.

        `answers_from` names the source of answers during an outage: "copies", or "memory" in mode cloud.
        """
        self._cloud = cloud
        self._state = state
        self._waiting = waiting
        self._answers_from = answers_from
        self._clock = clock
        self._via = ""

    async def run(self) -> None:
        while True:
            moved = self._cloud.changed.wait()
            self._log_path()
            if self._cloud.is_up:
                await moved
            else:
                moved.cancel()
                await self._outage()

    async def _outage(self) -> None:
        self._log_path()
        began, replayed = self._clock(), replayed_writes()
        self._state.changed()
        at = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        logger.warning(
            "offline since %s, answering from %s (%s)", at, self._answers_from, self._cloud.reasons
        )
        while not self._cloud.is_up:
            if not await completes_within(REPEAT_INTERVAL, self._cloud.changed.wait()):
                logger.warning(
                    "offline since %s, for %s now (%s)",
                    at,
                    duration(self._clock() - began),
                    self._cloud.reasons,
                )
        lasted = duration(self._clock() - began)
        self._log_path()
        self._state.changed()
        await self._replay()
        count, left = replayed_writes() - replayed, self._waiting()
        waits = f", {left} still wait" if left else ""
        logger.info("online again after %s; %d writes replayed%s", lasted, count, waits)

    def _log_path(self) -> None:
        """Log the link through which the cloud is reached, if it has changed."""
        lender, uplink = self._cloud.lender, self._cloud.working_uplink
        own = f"uplink {uplink}" if uplink is not None else OWN
        via = (f"node {lender}" if lender else own) if self._cloud.is_up else NO_PATH
        if via == self._via:
            return
        if lender and via != NO_PATH:
            logger.warning("the cloud cannot be reached directly: using a tunnel through node %s", lender)
        elif self._via.startswith("node ") and via != NO_PATH:
            logger.info("the cloud can be reached directly again: tunnel closed")
        self._via = via
        metrics.LINK.clear()
        metrics.LINK.labels(metrics.peer_label(lender) if lender and via != NO_PATH else via).set(1)

    async def _replay(self) -> None:
        """Return when no write waits, when the link is down again, or after REPLAY_WAIT seconds."""
        deadline = self._clock() + REPLAY_WAIT
        while self._waiting() and self._cloud.is_up and self._clock() < deadline:
            await completes_within(STEP, self._cloud.changed.wait())


def replayed_writes() -> int:
    """Return the number of journaled writes that the cloud has accepted since the process started."""
    return metrics.total(metrics.JOURNAL_REPLAYED)
