"""The hub as one addon of mitmproxy's: it makes its parts, and calls them in their order, each under the one guard.

mitmproxy looks each hook up in each addon at each event, and only logs what a hook raises.
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
    """One part of the hub's addon, with any of the hooks below."""

    @property
    def name(self) -> str: ...


class HubAddon:
    """Dispatches the hooks that any of its parts has."""

    name = "edgehub"
    _masters: ClassVar[WeakSet[object]] = WeakSet()
    """The masters that have loaded a hub; parts of two hubs in one of them would answer each other's requests."""

    def __init__(self, make: Callable[[], Sequence[object]]) -> None:
        """`make` makes the parts when mitmproxy loads the addon."""
        self._make = make
        self.parts: tuple[Any, ...] = ()

    def load(self, loader: Loader) -> None:
        """Make the parts, and load them.

        End the process where they cannot be made, and where the hub is loaded into it again: mitmproxy would only log
        the error, open its own port, and relay requests there without filters.
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
        """Make the parts, and have the hooks that any of them has."""
        self.parts = tuple(self._make())
        for hook in (*FLOW_HOOKS, *CONNECTION_HOOKS):
            if any(hasattr(part, hook) for part in self.parts):
                setattr(self, hook, guarded(self.parts, hook))

    def configure(self, updated: set[str]) -> None:
        """OptionsError where a part refuses an option; those behind it are not asked then."""
        self._call("configure", updated)

    def running(self) -> None:
        self._call("running")

    def done(self) -> None:
        """End every part, also where one fails to end."""
        for part in self.parts:
            try:
                getattr(part, "done", _nothing)()
            except Exception:
                logger.exception("a part of the hub failed to stop")

    def _call(self, hook: str, *arguments: object) -> None:
        for part in self.parts:
            getattr(part, hook, _nothing)(*arguments)


def _nothing(*_: object) -> None:
    """The hook of a part that does not have it."""
