"""mitmproxy watches scripts and loads changed ones again; it must leave the hub's own script alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mitmproxy.addons.script import ScriptLoader
from mitmproxy.test import taddons

from addons.proxy.interface.script_reload import HUB, stop_watching


async def test_only_the_hubs_own_script_is_no_longer_watched(tmp_path: Path) -> None:
    (other := tmp_path / "other.py").write_text("")
    (link := tmp_path / "hub.py").symlink_to(HUB)
    with taddons.context(loader := ScriptLoader(), loadcore=False) as context:
        context.options.update(scripts=[str(other), str(link)])
        watchers = [script.reloadtask for script in loader.addons]
        stop_watching(context.master)
        await asyncio.sleep(0)
        assert [each is not None and each.done() for each in watchers] == [False, True]
        context.options.update(scripts=[])
    await asyncio.gather(*(each for each in watchers if each is not None), return_exceptions=True)


def test_nothing_to_do_without_scripts() -> None:
    with taddons.context(loadcore=False) as context:
        stop_watching(context.master)
    assert HUB.is_file()
