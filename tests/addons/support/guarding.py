"""A part of the hub whose hooks are called under the guard, as the hub's addon calls them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from mitmproxy import hooks

from addons.proxy.fail_closed import guarded


class Guarded:
    """Forward every attribute except hooks of flows and connections, which never raise."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._part, name)
        is_hook = name in hooks.all_hooks and name not in ("load", "configure", "running", "done")
        if not is_hook:
            return own
        hook = guarded([self._part], name)
        return hook if inspect.iscoroutinefunction(own) else _at_once(hook)


def _at_once(hook: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
    """Return the hook of a part that never waits."""

    def run(data: Any) -> None:
        with contextlib.suppress(StopIteration):
            hook(data).__await__().send(None)

    return run


def under_guard[Part](part: Part) -> Part:
    """Return the part under a guard, typed as the part."""
    return cast("Part", Guarded(part))
