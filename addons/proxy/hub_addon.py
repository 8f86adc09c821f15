"""The hub as one addon of mitmproxy: creates its parts, and calls their hooks in a fixed order under one guard.

With several addons, mitmproxy would look up each hook in each addon at each event, and only log exceptions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol
from weakref import WeakSet

from mitmproxy.addonmanager import Loader

from addons.proxy.fail_closed import CONNECTION_HOOKS, FLOW_HOOKS, guarded

logger = logging.getLogger(__name__)


class HubPart(Protocol):
    """One part of the hub's addon, with any of the hooks listed in `addons.proxy.fail_closed`."""

    @property
    def name(self) -> str: ...


class HubAddon:
    """Dispatches mitmproxy's hooks to the hub's parts."""

    name = "edgehub"
    _masters: ClassVar[WeakSet[object]] = WeakSet()
    """The masters that have loaded a hub. Two hubs in one master would answer each other's requests."""

    def __init__(self, make: Callable[[], Sequence[object]]) -> None:
        """`make` creates the parts when mitmproxy loads the addon."""
        self._make = make
        self.parts: tuple[Any, ...] = ()

    def load(self, loader: Loader) -> None:
        """Create and load the parts.

        Exit the process if that fails, or if this master has loaded a hub before: mitmproxy would only log the error,
        open its own port, and relay requests there without filters.
        """
        if loader.master in self._masters:
            logger.critical("addons/hub.py was loaded a second time: the hub ends, start it again")
            raise SystemExit(1)
        self._masters.add(loader.master)
        try:
            self.make()
        except Exception as error:
            logger.critical("the hub cannot start", exc_info=error)
            raise SystemExit(1) from error
        self._call("load", loader)

    def make(self) -> None:
        """Create the parts, and define each hook that at least one of them has."""
        self.parts = tuple(self._make())
        for hook in (*FLOW_HOOKS, *CONNECTION_HOOKS):
            if any(hasattr(part, hook) for part in self.parts):
                setattr(self, hook, guarded(self.parts, hook))

    def configure(self, updated: set[str]) -> None:
        """Configure the parts in order. OptionsError if one refuses an option; later parts are skipped then."""
        self._call("configure", updated)

    def running(self) -> None:
        self._call("running")

    def done(self) -> None:
        """Stop every part, even if one fails to stop."""
        for part in self.parts:
            try:
                getattr(part, "done", _nothing)()
            except Exception:
                logger.exception("a part of the hub failed to stop")

    def _call(self, hook: str, *arguments: object) -> None:
        for part in self.parts:
            getattr(part, hook, _nothing)(*arguments)


def _nothing(*_: object) -> None:
    """Stand-in for a hook that a part does not define."""
