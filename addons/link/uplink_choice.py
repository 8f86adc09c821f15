"""Which uplink the node uses: the first that leads to a server. A better one is used again when it has lasted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from addons.link.health import Cloud
from addons.link.uplinks.better_way import BetterWay
from addons.link.uplinks.uplink import Uplink

logger = logging.getLogger(__name__)


class UplinkChoice:
    """Moves `Cloud.uplink` with what the probes find."""

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
            logger.warning("the uplink %s leads to no server: %s is used", used, leads)
            self._use(leads, now)
        waits = []
        for uplink in self._cloud.uplinks:
            if uplink == self._cloud.uplink:
                break
            left = self._ways[uplink].seconds_left(now, is_up=self._cloud.leads(uplink))
            if left == 0.0:
                logger.info("the uplink %s is used again", uplink)
                self._use(uplink, now)
                return None
            waits.append(left)
        return min((wait for wait in waits if wait is not None), default=None)

    def _use(self, uplink: Uplink, now: float) -> None:
        former, self._cloud.uplink = self._cloud.uplink, uplink
        self._ways[uplink].used(now)
        if former is not None:
            self._left(former)
