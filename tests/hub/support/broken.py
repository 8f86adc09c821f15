"""The hub with hooks that a test breaks while it runs: `python -m tests.hub.support.broken FILE FLAGS…`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from addons import command, hub
from addons.proxy.fail_closed import CONNECTION_HOOKS, FLOW_HOOKS
from addons.proxy.hub_addon import HubAddon


def parts_and_hooks() -> tuple[list[Any], list[tuple[Any, str]]]:
    """Return the parts of a hub, and each hook of each."""
    parts = [part for part, _, _ in hub.order()]
    hooks = (*FLOW_HOOKS, *CONNECTION_HOOKS)
    return parts, [(part, hook) for part in parts for hook in hooks if hasattr(part, hook)]


NAMES = [f"{part.name}.{hook}" for part, hook in parts_and_hooks()[1]]


def breakable(file: Path) -> list[Any]:
    """Make parts with hooks whose body raises while the file names it, as PART.HOOK."""
    parts, found = parts_and_hooks()
    for part, hook in found:
        setattr(part, hook, _breakable(getattr(part, hook), f"{part.name}.{hook}", file))
    return parts


def _breakable(body: Callable[[Any], Any], name: str, file: Path) -> Callable[[Any], Any]:
    def check() -> None:
        if file.read_text() == name:
            raise RuntimeError("broken on purpose")

    async def run_later(data: object) -> None:
        check()
        await body(data)

    def run(data: object) -> Any:
        check()
        return body(data)

    return run_later if inspect.iscoroutinefunction(body) else run


if __name__ == "__main__":
    hub.addon = HubAddon(lambda: breakable(Path(sys.argv[1])))
    command.main(sys.argv[2:])
