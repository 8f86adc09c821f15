"""Keeps the credentials of a kubeconfig's exec plugin: run again before they end, and when the cloud refuses them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier
from kube.http.exec_plugin import ExecPlugin
from kube.http.kubeconfig import Credentials

AHEAD = 0.1
"""The share of the remaining life at which credentials are renewed before their end, so that no request waits for a
plugin."""
LONGEST_SLEEP = 30.0
"""Seconds after which the clock is read again: a laptop that slept has missed an end."""

logger = logging.getLogger(__name__)


class PluginCredentials:
    """Runs one plugin whenever it is time. Former credentials serve while a plugin fails."""

    def __init__(
        self,
        credentials: Credentials,
        plugin: ExecPlugin,
        refused: Notifier,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refused` is notified when the cloud has answered 401. `clock` gives seconds since the epoch."""
        self._credentials = credentials
        self._plugin = plugin
        self._refused = refused
        self._clock = clock
        self._renewal: float | None = None
        """When to run the plugin next, on `clock`; None: when the cloud refuses."""

    async def load(self) -> None:
        """Run the plugin, and take its credentials; ValueError where it returns none."""
        given = await asyncio.to_thread(self._plugin.run)
        self._credentials.use_output(given)
        now = self._clock()
        self._renewal = given.expiry - max(0.0, given.expiry - now) * AHEAD if given.expiry else None

    async def run(self) -> None:
        """Renew the credentials until cancelled. `load` comes first."""
        backoff = Backoff()
        while True:
            await self._until_due()
            try:
                await self.load()
            except ValueError as error:
                logger.warning("the previous credentials stay in use: %s", error)
            # A plugin's credentials may be refused again, or have expired already.
            await asyncio.sleep(backoff.next())

    async def _until_due(self) -> None:
        while self._renewal is None or self._renewal > self._clock():
            left = LONGEST_SLEEP if self._renewal is None else self._renewal - self._clock()
            waiter = self._refused.wait()
            done, _ = await asyncio.wait({waiter}, timeout=min(left, LONGEST_SLEEP))
            waiter.cancel()
            if done:
                return
