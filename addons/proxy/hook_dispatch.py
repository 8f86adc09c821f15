"""Calls the addons of a hook without looking them up anew at each event.

mitmproxy walks through all addons for each hook of each request and asks each one whether it has a function of that
name. With its forty default addons that takes half of a small request's time. The hub looks the functions up once, and
again after an addon came or went.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import addonmanager, exceptions, flow, hooks
from mitmproxy.addonmanager import AddonManager

from addons.proxy.patches import Patch

logger = logging.getLogger(__name__)

type Functions = tuple[Callable[..., Any], ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The functions of each hook, for one state of a manager's addons."""

    chain: list[object]
    addons: list[object]
    """With those that other addons brought, as mitmproxy's script loader does."""
    found: dict[str, tuple[Functions, ...]]
    """By the hook's name: for each addon of the chain that has any, its function and those of the addons in it."""


_lookups: WeakKeyDictionary[AddonManager, Lookup] = WeakKeyDictionary()


async def trigger_event(self: AddonManager, event: hooks.Hook) -> None:
    """Call the hook's functions in order, as mitmproxy does: an error is logged, and ends its own addon's turn."""
    arguments = event.args()
    for functions in _functions(self, event.name):
        try:
            for function in functions:
                result = function(*arguments)
                if result is not None and inspect.isawaitable(result):
                    await result
        except exceptions.AddonHalt:
            return
        except exceptions.OptionsError:
            raise
        except Exception as error:
            logger.error("Addon error: %s", error, exc_info=error)


async def handle_lifecycle(self: AddonManager, event: hooks.Hook) -> None:
    """Trigger an event, and after one of a flow mitmproxy's `update`, where an addon has that."""
    await trigger_event(self, event)
    subject = event.args()[0]
    if isinstance(subject, flow.Flow) and _functions(self, hooks.UpdateHook.name):
        await trigger_event(self, hooks.UpdateHook([subject]))


def _functions(manager: AddonManager, name: str) -> tuple[Functions, ...]:
    addons = [*manager.lookup.values()]
    lookup = _lookups.get(manager)
    if lookup is None or lookup.addons != addons or lookup.chain != manager.chain:
        lookup = _lookups[manager] = Lookup([*manager.chain], addons, {})
    found = lookup.found.get(name)
    if found is None:
        found = lookup.found[name] = tuple(filter(None, (_of_addon(each, name) for each in manager.chain)))
    return found


def _of_addon(addon: object, name: str) -> Functions:
    functions = (getattr(each, name, None) for each in addonmanager.traverse([addon]))
    return tuple(each for each in functions if callable(each))


SHOWN_BY = "tests/addons/proxy/test_hook_dispatch.py::test_mitmproxy_itself_looks_a_hook_up_at_each_event"
PATCHES = (
    Patch(
        AddonManager,
        "trigger_event",
        trigger_event,
        "(self, event)",
        "mitmproxy looks each hook up in each addon, at each event",
        SHOWN_BY,
    ),
    Patch(
        AddonManager,
        "handle_lifecycle",
        handle_lifecycle,
        "(self, event)",
        "mitmproxy triggers a second event after each of a flow, also where no addon takes that one",
        SHOWN_BY,
    ),
)
