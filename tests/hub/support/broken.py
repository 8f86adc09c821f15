"""The hub with one hook of one addon broken: `python -m tests.hub.support.broken ADDON HOOK FLAGS…`.

The classes of the addons are broken here, before mitmproxy loads the script that makes instances of them.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from addons import command, hub

WHY = "broken on purpose"


def break_hook(addon: str, hook: str) -> None:
    """Let the hook's body raise within the guard that it has."""
    cls = next(type(each) for each in hub.addons if vars(type(each))["name"] == addon)
    whole = vars(cls)[hook]

    async def fail_later(_self: object, _data: object) -> None:
        raise RuntimeError(WHY)

    def fail(_self: object, _data: object) -> None:
        raise RuntimeError(WHY)

    body: Any = fail_later if inspect.iscoroutinefunction(inspect.unwrap(whole)) else fail
    body.__name__ = hook
    setattr(cls, hook, whole.guard(body))


if __name__ == "__main__":
    break_hook(sys.argv[1], sys.argv[2])
    command.main(sys.argv[3:])
