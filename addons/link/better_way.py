"""Which way the node goes: the first that leads to the cloud. A better one that is back is used when it has lasted.

A better way is an own one in the place of a borrowed one, or a preferred uplink.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from addons.link.health import Cloud
from addons.link.uplinks.uplink import Uplink
from kube.concurrency.pulse import Pulse, comes_within, first_of

HOLD = 10.0
"""Seconds that a better way must have been up before the node goes it again."""
LONGEST_HOLD = 160.0
"""The same for one that was lost again and again, each time in less than LASTING seconds."""
LASTING = 300.0

logger = logging.getLogger(__name__)


class BetterWay:
    """When a way is used again. Pure; all moments are monotonic seconds."""

    def __init__(self) -> None:
        self._hold = HOLD
        self._up_since: float | None = None
        self._used_since = float("-inf")

    def lost(self, now: float) -> None:
        """The way is gone. One that did not last must be up for twice as long the next time."""
        lasted = now - self._used_since
        self._hold = min(2 * self._hold, LONGEST_HOLD) if lasted < LASTING else HOLD
        self._up_since = None

    def seconds_left(self, now: float, *, is_up: bool) -> float | None:
        """Until the way is used again; None while it is gone."""
        if not is_up:
            self._up_since = None
            return None
        if self._up_since is None:
            self._up_since = now
        return max(0.0, self._up_since + self._hold - now)

    def used(self, now: float) -> None:
        """The node goes this way again."""
        self._used_since = now


class UplinkChoice:
    """Moves `Cloud.uplink` with what the probes find: the node uses the first uplink that leads to a server."""

    def __init__(self, cloud: Cloud, left: Callable[[Uplink], None]) -> None:
        """`left` ends what is open by an uplink that is used no longer."""
        self._cloud = cloud
        self._left = left
        self._ways = {uplink: BetterWay() for uplink in cloud.uplinks}

    def step(self, now: float) -> float | None:
        """Use what is to be used; seconds until a better uplink may be, None while none is up."""
        used = self._cloud.uplink
        leads = self._cloud.leading_uplink
        if leads is not None and used is not None and leads != used:
            self._ways[used].lost(now)
            logger.warning("uplink %s reaches no server: using %s", used, leads)
            self._use(leads, now)
        waits = []
        for uplink in self._cloud.uplinks:
            if uplink == self._cloud.uplink:
                break
            left = self._ways[uplink].seconds_left(now, is_up=self._cloud.leads(uplink))
            if left == 0.0:
                logger.info("using uplink %s again", uplink)
                self._use(uplink, now)
                return None
            waits.append(left)
        return min((wait for wait in waits if wait is not None), default=None)

    def _use(self, uplink: Uplink, now: float) -> None:
        former, self._cloud.uplink = self._cloud.uplink, uplink
        self._ways[uplink].used(now)
        if former is not None:
            self._left(former)


async def keep_choosing(
    step: Callable[[float], float | None], clock: Callable[[], float], changed: Pulse, probed: Pulse
) -> None:
    """Do what is due until cancelled. `step` says in how many seconds more is, None where only a server's coming or
    going makes it; `changed` notifies when one comes or goes, `probed` after each probe."""
    while True:
        moved = (changed.wait(), probed.wait())
        seconds = step(clock())
        await comes_within(seconds, first_of(*moved))
