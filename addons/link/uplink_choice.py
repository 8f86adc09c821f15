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
        self._ways = {each: BetterWay() for each in cloud.uplinks}

    def step(self, now: float) -> float | None:
        """Use what is to be used; seconds until a better uplink may be, None while none is up."""
        used = self._cloud.uplink
        leads = self._cloud.leading_uplink
        if leads is not None and used is not None and leads != used:
            self._ways[used].lost(now)
            logger.warning("the uplink %s leads to no server: %s is used", used, leads)
            self._use(leads, now)
        waits = []
        for each in self._cloud.uplinks:
            if each == self._cloud.uplink:
                break
            left = self._ways[each].seconds_left(now, is_up=self._cloud.leads(each))
            if left == 0.0:
                logger.info("the uplink %s is used again", each)
                self._use(each, now)
                return None
            waits.append(left)
        return min((each for each in waits if each is not None), default=None)

    def _use(self, uplink: Uplink, now: float) -> None:
        former, self._cloud.uplink = self._cloud.uplink, uplink
        self._ways[uplink].used(now)
        if former is not None:
            self._left(former)
