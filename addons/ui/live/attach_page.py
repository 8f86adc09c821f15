"""The page `/debug/flows`: the flows of a running hub, for `edgehub attach`, and what that decides about held ones."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web
from mitmproxy.io import tnetstring

from addons.ui.attached.attachments import Attachments
from addons.ui.live.observe_page import ALIVE
from addons.ui.operator_check import for_operator
from kube.concurrency.pulse import comes_within
from kube.errors import bad_request, entity_too_large

MAX_DECISION = 5 * 1024 * 1024
"""Bytes of an edited message: the longest that is held has 4 MiB."""


class AttachPage:
    """The handlers, for the admin server. `close` ends the feed."""

    def __init__(self, attachments: Attachments, plain_users: frozenset[int]) -> None:
        self._attachments = attachments
        self._plain_users = plain_users
        self._closed = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        operators = partial(for_operator, self._plain_users)
        flows, decide = operators(self._flows), operators(self._decide)
        return [web.get("/debug/flows", flows), web.post("/debug/flows", decide)]

    def close(self) -> None:
        self._closed.set()

    async def _flows(self, request: web.Request) -> web.StreamResponse:
        attachments = self._attachments
        response = web.StreamResponse(
            headers={"Content-Type": "application/octet-stream", "Cache-Control": "no-store"}
        )
        feed, flows = attachments.attach()
        try:
            from addons.ui.attached.flow_feed import NOTHING, record  # noqa: PLC0415 - loaded by `attach`

            await response.prepare(request)
            told = {
                "visible": [*attachments.visible()],
                "key": attachments.key,
                "may_hold": attachments.may_hold(),
            }
            await response.write(record(told))
            while not self._closed.is_set() and not feed.is_closed:
                is_news = await comes_within(ALIVE, feed.wait())
                await response.write(feed.next(flows) if is_news else NOTHING)
            if feed.is_closed:
                await response.write(record({"ended": "another process is attached now"}))
            await response.write_eof()
        except ConnectionResetError:
            pass  # the person has ended what was attached
        finally:
            attachments.detach(feed)
        return response

    async def _decide(self, request: web.Request) -> web.Response:
        attachments = self._attachments
        attachments.refuse_others(request.query.get("key", ""))
        text = b""
        async for piece in request.content.iter_any():
            text += piece
            if len(text) > MAX_DECISION:
                raise entity_too_large(f"limit is {MAX_DECISION}")
        try:
            said = tnetstring.loads(text)
        except (ValueError, TypeError, IndexError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise bad_request("no record of an attached process")
        attachments.told(said)
        return web.Response(status=204)
