"""The hub as one addon of mitmproxy's: it calls its parts in their order, each under the one guard.

mitmproxy looks each hook up in each addon at each event, and only logs what a hook raises.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mitmproxy.addonmanager import Loader

from addons.proxy.fail_closed import CONNECTION_HOOKS, FLOW_HOOKS, guarded

logger = logging.getLogger(__name__)

type Step = Callable[[Any], Awaitable[None] | None]


class HubAddon:
    """Dispatches the hooks that any of its parts has. A part needs a `name` and some of the hooks below."""

    name = "edgehub"

    def __init__(self, parts: Sequence[object]) -> None:
        self._parts = tuple(parts)
        for hook in (*FLOW_HOOKS, *CONNECTION_HOOKS):
            if steps := [guarded(part, hook) for part in parts if hasattr(part, hook)]:
                setattr(self, hook, in_order(steps))

    def load(self, loader: Loader) -> None:
        self._call("load", loader)

    def configure(self, updated: set[str]) -> None:
        """OptionsError where a part refuses an option; those behind it are not asked then."""
        self._call("configure", updated)

    def running(self) -> None:
        self._call("running")

    def done(self) -> None:
        """End every part, also where one fails to end."""
        for part in self._parts:
            try:
                getattr(part, "done", _nothing)()
            except Exception:
                logger.exception("a part of the hub failed to stop")

    def _call(self, hook: str, *arguments: object) -> None:
        for part in self._parts:
            getattr(part, hook, _nothing)(*arguments)


def in_order(steps: Sequence[Step]) -> Callable[[Any], Awaitable[None]]:
    """One hook, made of those of the parts."""

    async def run(data: Any) -> None:
        for step in steps:
            done = step(data)
            if done is not None:
                await done

    return run


def _nothing(*_: object) -> None:
    """The hook of a part that does not have it."""
