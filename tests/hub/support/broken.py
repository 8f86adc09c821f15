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

HOOKS = [
    (part, name)
    for part, _, _ in hub.order
    for name in (*FLOW_HOOKS, *CONNECTION_HOOKS)
    if hasattr(part, name)
]
NAMES = [f"{part.name}.{name}" for part, name in HOOKS]


def make_breakable(file: Path) -> None:
    """Let the body of the hook raise that the file names, as PART.HOOK."""
    for part, hook in HOOKS:
        setattr(part, hook, _breakable(getattr(part, hook), f"{part.name}.{hook}", file))
    hub.addon = HubAddon([part for part, _, _ in hub.order])


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
    make_breakable(Path(sys.argv[1]))
    command.main(sys.argv[2:])
