"""Replays of an interface, by mitmproxy's own addon, through the hub's layers.

mitmproxy's layers would send a request without its credentials, which a flow does not have.
"""

from __future__ import annotations

import logging

from mitmproxy import ctx, http
from mitmproxy.addons import clientplayback
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.utils import asyncio_utils

from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.played_stream import players
from addons.proxy.http.request_stream import RequestStream
from addons.proxy.listeners import mode_of_state
from addons.requests.exchange.direct_pieces import DirectPieces

NAME = "clientplayback"

logger = logging.getLogger(__name__)


def replay_through_the_hub(master: Master) -> None:
    """Put the addon below in the place of mitmproxy's, where the master has that; what waits there is kept."""
    manager, own = master.addons, master.addons.get(NAME)
    if not isinstance(own, clientplayback.ClientPlayback):
        return
    replays = FlowReplays()  # type: ignore[no-untyped-call]  # as mitmproxy has it
    replays.queue = own.queue
    del manager.lookup[NAME]  # `remove` cannot end an addon whose end is asynchronous
    manager.chain[manager.chain.index(own)] = manager.register(replays)


class FlowReplays(clientplayback.ClientPlayback):
    """Replays one request after the other, or all at once, as the options want it."""

    name = NAME

    async def playback(self) -> None:
        while True:
            self.inflight = await self.queue.get()
            assert self.inflight is not None
            try:
                replay = FlowReplay(self.inflight, self.options).replay()
                if ctx.options.client_replay_concurrency == -1:
                    task = asyncio_utils.create_task(replay, name="replay", keep_ref=False)
                    self.replay_tasks.add(task)
                    task.add_done_callback(self.replay_tasks.remove)
                else:
                    await replay
            except Exception:
                logger.exception("the replay failed")
            self.queue.task_done()
            self.inflight = None


class FlowReplay(clientplayback.ReplayHandler):
    """One request on its way, as if it came to the listener again to which it came once."""

    def __init__(self, flow: http.HTTPFlow, options: Options) -> None:
        super().__init__(flow, options)
        context = self.layer.context
        context.layers.clear()
        flow.client_conn.proxy_mode = self.client.proxy_mode = mode_of_state(flow.client_conn.proxy_mode)
        self.layer = HubHttpLayer(context, HTTPMode.transparent)
        self.layer.connections[self.client] = clientplayback.MockServer(flow, context.fork())
        players[self.client.id] = self

    unwritten = 0

    def has_handled(self, _hook: commands.StartHook) -> bool:
        """Leave each hook to mitmproxy: it ends a replay by one."""
        return False

    def has_room(self, _stream: RequestStream) -> bool:
        """No client reads a replay."""
        return True

    async def wait_for_room(self, _stream: RequestStream) -> None:
        """Return at once."""

    def direct(self, _stream: RequestStream) -> DirectPieces | None:
        return None
