"""Owns the listeners of this process: mitmproxy's options cannot open or close one, and a lost listener is reopened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from mitmproxy import ctx
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError
from mitmproxy.optmanager import OptManager

from addons.proxy.listeners import closed, open_again, open_listeners, option_values
from addons.telemetry import metrics
from addons.telemetry.background import background

OPTIONS = ("mode", "server", "listen_host", "listen_port")
"""The options by which mitmproxy opens its listeners."""
SETUP = "setup_servers"
"""Name of the task in which mitmproxy opens listeners when it starts. It has begun before mitmproxy loads the hub as a
script (`mitmdump -s`).
"""
CHECK_INTERVAL = 1.0
"""Seconds between two checks for a lost listener."""
REFUSED = "the hub owns the ports of this process: choose them at its start; mode and server cannot change"

logger = logging.getLogger(__name__)


class OwnListeners:
    """Opens the hub's listeners, forbids all others, and reopens lost ones."""

    name = "edgehub-listeners"

    def __init__(self) -> None:
        self._specs: Sequence[str] = ()
        self._accepted: dict[str, object] = {}
        """The values that `OPTIONS` must have."""
        self._lost: frozenset[str] = frozenset()
        """Addresses that were not open at the last check."""
        self._lock = asyncio.Lock()
        """Held while listeners change, so that a listener that is just opening does not count as lost."""
        self._keeping: asyncio.Task[None] | None = None

    def load(self, loader: Loader) -> None:
        """Prevent mitmproxy from opening listeners: the hub opens its own once it can answer."""
        master = loader.master
        master.options.update(server=False)
        for task in asyncio.all_tasks(master.event_loop):
            if task.get_name().startswith(SETUP):
                task.cancel()

    def running(self) -> None:
        # Subscribers are notified before mitmproxy's addons, one of which would close the hub's listeners at once.
        self._accepted = {name: getattr(ctx.options, name) for name in OPTIONS}
        ctx.options.subscribe(self._refuse, OPTIONS)
        self._keeping = background(self._keep_open(), "listeners")

    def done(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    async def open(self, specs: Sequence[str]) -> None:
        """Open the listeners of these mode specifications, and close all others. OSError as in `open_listeners`."""
        async with self._lock:
            self._specs = specs
            self._accepted |= option_values(specs)
            await open_listeners(specs)

    def closed(self) -> list[str]:
        """Return the addresses whose listeners should be open and are not."""
        return closed(self._specs)

    async def _keep_open(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            async with self._lock:
                await self._open_again()

    async def _open_again(self) -> None:
        if self._differs(ctx.options):
            ctx.options.update(**self._accepted)  # `options.reset` calls no validator
        lost = frozenset(self.closed())
        for address in lost - self._lost:
            metrics.LISTENERS_LOST.inc()
            logger.error("the listener at %s was lost: the hub opens it again", address)
        if lost:
            try:
                await open_again(self._specs)
            except OSError as error:
                if lost - self._lost:
                    logger.error(
                        "%s cannot be opened, and is tried again: %s", error.filename, error.strerror
                    )
        for address in (lost | self._lost).difference(still_lost := self.closed()):
            logger.warning("the listener at %s is open again", address)
        self._lost = frozenset(still_lost)
        metrics.LISTENERS_CLOSED.set(len(still_lost))

    def _refuse(self, options: OptManager, _updated: set[str]) -> None:
        if self._differs(options):
            raise OptionsError(REFUSED)

    def _differs(self, options: OptManager) -> bool:
        return any(getattr(options, name) != value for name, value in self._accepted.items())
