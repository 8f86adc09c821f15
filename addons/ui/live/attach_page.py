"""The page `/debug/flows`: the flows of a running hub, for `edgehub attach`."""

from __future__ import annotations

import asyncio

from aiohttp import web

from addons.ui.live.observe_page import ALIVE
from addons.ui.operator_check import refuse_others
from addons.ui.reports.running_hub import RunningHub
from kube.errors import conflict


class AttachPage:
    """The handler, for the admin server. `close` ends the feed."""

    def __init__(self, hub: RunningHub) -> None:
        self._hub = hub
        self._closed = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/debug/flows", self._flows)]

    def close(self) -> None:
        self._closed.set()

    async def _flows(self, request: web.Request) -> web.StreamResponse:
        await refuse_others(request, self._hub.settings.plain_users)
        if self._hub.attachments is None:
            raise conflict("this hub has an interface of mitmproxy itself: look there")
        response = web.StreamResponse(
            headers={"Content-Type": "application/octet-stream", "Cache-Control": "no-store"}
        )
        feed, flows = self._hub.attachments.attach()
        try:
            from addons.ui.flow_feed import NOTHING, record  # noqa: PLC0415 - loaded by `attach`

            await response.prepare(request)
            await response.write(record({"visible": [*self._hub.attachments.visible()]}))
            while not self._closed.is_set() and not feed.is_closed:
                try:
                    async with asyncio.timeout(ALIVE):
                        await feed.wait()
                except TimeoutError:
                    await response.write(NOTHING)
                else:
                    await response.write(feed.next(flows))
            if feed.is_closed:
                await response.write(record({"ended": "another process is attached now"}))
            await response.write_eof()
        except ConnectionResetError:
            pass  # the person has ended what was attached
        finally:
            self._hub.attachments.detach(feed)
        return response
