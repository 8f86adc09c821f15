"""The hub's replacements for addons that mitmproxy loads beside an interface: replays, HAR files, script reloading."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader
from mitmproxy.addons import clientplayback, savehar
from mitmproxy.addons.script import ScriptLoader
from mitmproxy.connection import Server
from mitmproxy.master import Master
from mitmproxy.utils import asyncio_utils

from addons.proxy.listeners import mode_of_state
from addons.server.flow_replay import replay

HUB = Path(__file__).parents[2] / "hub.py"

logger = logging.getLogger(__name__)


def change_addons(master: Master) -> None:
    """Replace mitmproxy's addons, if they are loaded, by the ones below, and stop its reloading of the hub."""
    own = master.addons.get(FlowReplays.name)
    if isinstance(own, clientplayback.ClientPlayback):
        replays = FlowReplays()  # type: ignore[no-untyped-call]  # as mitmproxy has it
        replays.queue = own.queue  # waiting replays are preserved
        _replace(master, own, replays)
    own = master.addons.get(CommentedHar.name)
    if type(own) is savehar.SaveHar:
        _replace(master, own, CommentedHar())
    _stop_watching(master)


def _replace(master: Master, own: Any, ours: Any) -> None:
    manager = master.addons
    del manager.lookup[ours.name]  # `remove` cannot stop an addon whose stop is asynchronous
    manager.chain[manager.chain.index(own)] = manager.register(ours)


def _stop_watching(master: Master) -> None:
    """Stop mitmproxy's file watch if it loaded the hub as a script (`mitmdump -s`).

    An upgrade in place replaces the file. mitmproxy would then unload the hub's addons and load new ones from the old
    modules, while connections use both.
    """
    loader = master.addons.get("scriptloader")
    if not isinstance(loader, ScriptLoader):
        return
    for script in loader.addons:
        path = Path(script.fullpath)
        if script.reloadtask is not None and path.exists() and path.samefile(HUB):
            script.reloadtask.cancel()


class FlowReplays(clientplayback.ClientPlayback):
    """Replays requests through the hub's own server, one after the other, or all at once by an option.

    mitmproxy's layers would send a request without its credentials, because the hub stores none in flows.
    """

    name = "clientplayback"

    async def playback(self) -> None:
        while True:
            self.inflight = await self.queue.get()
            assert self.inflight is not None
            try:
                replaying = _replay(self.inflight)
                if ctx.options.client_replay_concurrency == -1:
                    task = asyncio_utils.create_task(replaying, name="replay", keep_ref=False)
                    self.replay_tasks.add(task)
                    task.add_done_callback(self.replay_tasks.remove)
                else:
                    await replaying
            except Exception:
                logger.exception("the replay failed")
            self.queue.task_done()
            self.inflight = None


async def _replay(flow: http.HTTPFlow) -> None:
    flow.client_conn.proxy_mode = mode_of_state(flow.client_conn.proxy_mode)
    await replay(flow)


class CommentedHar(savehar.SaveHar):
    """HAR files with each flow's comment, as in HAR 1.2 (softwareishard.com/blog/har-12-spec, "entries")."""

    name = "savehar"

    def load(self, loader: Loader) -> None:
        """Do nothing: mitmproxy's own addon has declared the options."""

    def flow_entry(self, flow: http.HTTPFlow, servers_seen: set[Server]) -> dict[str, Any]:
        return {**super().flow_entry(flow, servers_seen), "comment": flow.comment}
