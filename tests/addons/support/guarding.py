"""A part of the hub whose hooks are called as the hub's one addon calls them: under its guard."""

from __future__ import annotations

from typing import Any, cast

from mitmproxy import hooks

from addons.proxy.fail_closed import guarded


class Guarded:
    """Hands on all but the hooks of flows and connections, which never raise."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._part, name)
        is_hook = name in hooks.all_hooks and name not in ("load", "configure", "running", "done")
        return guarded(self._part, name) if is_hook else own


def under_guard[Part](part: Part) -> Part:
    """The part, as far as a test uses it."""
    return cast("Part", Guarded(part))
