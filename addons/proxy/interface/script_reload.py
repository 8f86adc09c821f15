"""Keeps mitmproxy from loading `addons/hub.py` anew under a running hub, as it does with a script that has changed."""

from __future__ import annotations

from pathlib import Path

from mitmproxy.addons.script import ScriptLoader
from mitmproxy.master import Master

HUB = Path(__file__).parents[2] / "hub.py"


def stop_watching(master: Master) -> None:
    """End mitmproxy's watch over the file, where mitmproxy loaded the hub as a script (`mitmdump -s`).

    An upgrade in place replaces the file. mitmproxy would then take the hub's addons apart, and put new ones of the
    old modules in their place, while connections go on through both.
    """
    loader = master.addons.get("scriptloader")
    if not isinstance(loader, ScriptLoader):
        return
    for script in loader.addons:
        path = Path(script.fullpath)
        if script.reloadtask is not None and path.exists() and path.samefile(HUB):
            script.reloadtask.cancel()
