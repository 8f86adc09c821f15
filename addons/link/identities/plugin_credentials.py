"""Runs a kubeconfig's exec plugin to get credentials, shortly before they expire and when the cloud refuses them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier
from kube.http.exec_plugin import ExecPlugin
from kube.http.kubeconfig import User

RENEWAL_MARGIN = 0.1
"""Fraction of the remaining lifetime by which credentials are renewed before they expire, so that no request waits for
a plugin.
"""
LONGEST_SLEEP = 30.0
"""Maximum seconds between two checks of the clock: a machine that was suspended may have missed an expiry."""

logger = logging.getLogger(__name__)


class PluginCredentials:
    """Runs one plugin whenever its credentials are due. The previous credentials stay in use while it fails."""

    def __init__(
        self,
        user: User,
        plugin: ExecPlugin,
        refused: Notifier,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refused` notifies of a 401 from the cloud. `clock` returns seconds since the epoch."""
        self._user = user
        self._plugin = plugin
        self._refused = refused
        self._clock = clock
        self._renewal: float | None = None
        """Time on `clock` at which to run the plugin next; None if only a refusal requires that."""

    async def load(self) -> None:
        """Run the plugin, and use its credentials. ValueError if it returns none."""
        given = await asyncio.to_thread(self._plugin.run)
        self._user.use_output(given)
        now = self._clock()
        self._renewal = given.expiry - max(0.0, given.expiry - now) * RENEWAL_MARGIN if given.expiry else None

    async def run(self) -> None:
        """Renew the credentials until cancelled. Call `load` first."""
        backoff = Backoff()
        while True:
            await self._until_due()
            try:
                await self.load()
            except ValueError as error:
                logger.warning("the previous credentials stay in use: %s", error)
            # Back off: new credentials may be refused again, or have expired already.
            await asyncio.sleep(backoff.next())

    async def _until_due(self) -> None:
        while self._renewal is None or self._renewal > self._clock():
            left = LONGEST_SLEEP if self._renewal is None else self._renewal - self._clock()
            waiter = self._refused.wait()
            done, _ = await asyncio.wait({waiter}, timeout=min(left, LONGEST_SLEEP))
            waiter.cancel()
            if done:
                return
