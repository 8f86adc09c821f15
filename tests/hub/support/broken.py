"""The hub with one hook of one part broken: `python -m tests.hub.support.broken PART HOOK FLAGS…`."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from addons import command, hub
from addons.proxy.hub_addon import HubAddon

WHY = "broken on purpose"


def break_hook(name: str, hook: str) -> None:
    """Let the hook's body raise."""
    parts = [part for part, _, _ in hub.places]
    broken = next(part for part in parts if part.name == name)

    async def fail_later(_data: object) -> None:
        raise RuntimeError(WHY)

    def fail(_data: object) -> None:
        raise RuntimeError(WHY)

    body: Any = fail_later if inspect.iscoroutinefunction(getattr(broken, hook)) else fail
    setattr(broken, hook, body)
    hub.addon = HubAddon(parts)


if __name__ == "__main__":
    break_hook(sys.argv[1], sys.argv[2])
    command.main(sys.argv[3:])
