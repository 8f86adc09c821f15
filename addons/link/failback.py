"""Fails over to the first connection that reaches the cloud, and back to a preferred one once that has been stable.

The node's own connection is preferred to a tunnel through another node, and an uplink to those listed after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from addons.link.health import Cloud
from addons.link.uplinks.uplink import Uplink
from kube.concurrency.notifier import Notifier, completes_within, wait_for_any

FAILBACK_DELAY = 10.0
"""Seconds for which a preferred connection must have been up before the node uses it again."""
LONGEST_FAILBACK_DELAY = 160.0
"""Maximum of that time, for a connection that failed repeatedly within STABLE_AFTER seconds of use."""
STABLE_AFTER = 300.0

logger = logging.getLogger(__name__)


class FailbackTimer:
    """Decides when a lost connection is used again. Pure; all times are monotonic seconds."""

    def __init__(self) -> None:
        self._delay = FAILBACK_DELAY
        self._up_since: float | None = None
        self._used_since = float("-inf")

    def lost(self, now: float) -> None:
        """Record a loss. The hold time doubles if the connection was lost soon after its last use began."""
        lasted = now - self._used_since
        self._delay = (
            min(2 * self._delay, LONGEST_FAILBACK_DELAY) if lasted < STABLE_AFTER else FAILBACK_DELAY
        )
        self._up_since = None

    def seconds_left(self, now: float, *, is_up: bool) -> float | None:
        """Return the seconds until the connection may be used again; None while it is down."""
        if not is_up:
            self._up_since = None
            return None
        if self._up_since is None:
            self._up_since = now
        return max(0.0, self._up_since + self._delay - now)

    def used(self, now: float) -> None:
        """Record that the connection is in use again."""
        self._used_since = now


class UplinkSelector:
    """Sets `Cloud.uplink` by the results of probes: the first uplink that reaches a server."""

    def __init__(self, cloud: Cloud, on_left: Callable[[Uplink], None]) -> None:
        """`on_left` closes the connections of an uplink that is no longer used."""
        self._cloud = cloud
        self._on_left = on_left
        self._timers = {uplink: FailbackTimer() for uplink in cloud.uplinks}

    def step(self, now: float) -> float | None:
        """Select the uplink. Return the seconds until a preferred one may be used, or None while none is up."""
        used = self._cloud.uplink
        working = self._cloud.working_uplink
        if working is not None and used is not None and working != used:
            self._timers[used].lost(now)
            logger.warning("uplink %s reaches no server: using %s", used, working)
            self._use(working, now)
        waits = []
        for uplink in self._cloud.uplinks:
            if uplink == self._cloud.uplink:
                break
            left = self._timers[uplink].seconds_left(now, is_up=self._cloud.reaches_server(uplink))
            if left == 0.0:
                logger.info("using uplink %s again", uplink)
                self._use(uplink, now)
                return None
            waits.append(left)
        return min((wait for wait in waits if wait is not None), default=None)

    def _use(self, uplink: Uplink, now: float) -> None:
        previous, self._cloud.uplink = self._cloud.uplink, uplink
        self._timers[uplink].used(now)
        if previous is not None:
            self._on_left(previous)


async def run_selector(
    step: Callable[[float], float | None], clock: Callable[[], float], changed: Notifier, probed: Notifier
) -> None:
    """Call `step` whenever it is due, until cancelled.

    `step` returns the seconds until its next call, or None if only a change of a server's state requires one. `changed`
    notifies of such changes, `probed` of each probe.
    """
    while True:
        changes = (changed.wait(), probed.wait())
        seconds = step(clock())
        await completes_within(seconds, wait_for_any(*changes))
