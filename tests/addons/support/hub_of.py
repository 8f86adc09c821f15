"""The hub's addon with parts chosen by a test."""

from __future__ import annotations

from typing import Any, cast

from addons.assembly import Assembly, RequestParts
from addons.egress import Egress
from addons.options import Options
from addons.proxy.hub_addon import HubAddon
from addons.server.limits.open_connections import OpenConnections
from addons.ui.hub_records import Records


def hub_of(*parts: object) -> HubAddon:
    """Return the addon with these parts, as mitmproxy loads it."""
    made = HubAddon(lambda: parts)
    made.make()
    return made


def assembly(options: Options) -> Assembly:
    """Return an assembly that fails, or gets an option, before it needs another part."""
    none, egress = cast(Any, None), Egress(OpenConnections(1))
    return Assembly(options, none, RequestParts(none, none, none, egress), Records(), none)
